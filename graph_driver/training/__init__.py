"""Training: forward and backward of a model as one graph, optimisers, and what is kept of them (docs/training.md)."""
