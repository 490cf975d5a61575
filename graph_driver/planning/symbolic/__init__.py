"""Sizes that only a run decides: symbols, formulas, shape rules, guards and the arena's formulas."""
