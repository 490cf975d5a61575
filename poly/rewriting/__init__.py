"""From one Scop to another that computes the same: composed, specialised, stored or ordered otherwise."""
