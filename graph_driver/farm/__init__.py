"""Independent work on many machines by Dask: trials of tuning, kernels, rows of benchmarks, batches of a model."""
