"""Strategies for tensor contractions on a CPU: found, register-tiled, packed."""
