"""Comparing a model with an independent reference, with itself without a pass, with poisoned memory."""
