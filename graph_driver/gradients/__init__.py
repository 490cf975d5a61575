"""Derivatives of graphs: nodes that compute gradients are added behind the nodes that they belong to (`reverse.py`)."""
