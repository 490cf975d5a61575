"""Timings on a GPU: `python -m benchmarks.gpu`. Other systems' times stand beside them where torch is installed."""
