"""The rows of the mission, what shows each, and what is missing of it."""
