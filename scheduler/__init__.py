"""Schedules: immutable transformations with exact legality, and strategies that propose them."""
