"""Compiled models that run: for one shape, for all sizes, for the shapes of each call."""
