"""Strategies for GPUs: blocks, threads, shared memory and registers."""
