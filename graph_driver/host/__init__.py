"""Nodes without a kernel: Python runs them by the definition of their operator."""
