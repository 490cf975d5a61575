"""Gradients of operators beside PyTorch's backward."""
