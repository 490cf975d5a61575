"""The stages from a graph to a model, sizes being numbers or formulas."""
