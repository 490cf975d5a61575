"""What a graph is: tensors, nodes, sizes as formulas, aliases, and what compiling decides and reports about it."""
