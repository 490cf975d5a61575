"""Graphs that a front end makes itself, node by node."""
