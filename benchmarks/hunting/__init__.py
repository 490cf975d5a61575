"""Random cases of operators, kind by kind (`python -m benchmarks.hunt`)."""
