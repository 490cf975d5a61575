"""Counts as formulas in the sizes: integer points summed symbolically, printed, evaluated."""
