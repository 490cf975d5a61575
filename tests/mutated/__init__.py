"""Valid inputs of polyc and ways to damage them: what `python -m tests.mutations` runs."""
