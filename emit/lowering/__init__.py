"""From a Scop and its schedule tree, through isl's AST, to loop IR."""
