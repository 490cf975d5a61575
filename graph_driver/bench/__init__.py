"""Times: what this machine can do, kernels alone, models beside their peers (`polyc bench`, `benchmarks/`)."""
