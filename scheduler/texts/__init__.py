"""Schedules as text that people edit, compare and replay: YAML, differences, addresses of loops."""
