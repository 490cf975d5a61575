"""Comparing a model with an independent reference."""
