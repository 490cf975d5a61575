"""polyc beside its peers: interleaved timings in one process (`polyc bench`, `benchmarks/`)."""
