"""Whole models on a GPU: one arena on the device, one sequence of launches."""
