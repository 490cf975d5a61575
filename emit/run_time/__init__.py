"""Threads for compiled code: loops in parts, and whole kernels as tasks."""
