"""A plan whose sizes are formulas: one for all sizes, bound to the numbers of a run."""
