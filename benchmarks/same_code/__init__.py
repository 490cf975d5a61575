"""Two versions of polyc on the same cases: which of them have the same machine code, and how fast the others run."""
