"""Launches as CUDA C or OpenCL C."""
