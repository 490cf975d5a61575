"""Other spellings of programs (`python -m benchmarks.respelled`)."""
