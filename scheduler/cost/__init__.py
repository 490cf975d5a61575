"""Predicted times, and all numbers that strategies weigh, with their sources."""
