"""The stages from a graph to a model: for numbers, for symbolic sizes, for a GPU."""
