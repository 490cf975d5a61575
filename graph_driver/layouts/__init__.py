"""How tensors between kernels are stored: channels first, last or in blocks, chosen for the whole graph."""
