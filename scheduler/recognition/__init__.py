"""Recognition: what the nests of a Scop compute, found by access relations; names and spellings say nothing."""
