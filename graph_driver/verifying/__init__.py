"""The graph verifier: what must hold of a graph between all passes (`verify.py`)."""
