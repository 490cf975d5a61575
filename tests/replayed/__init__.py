"""Automatic schedules made again, in a new process, from their programs and Scops as text."""
