"""The one cost model: what a machine can do, what a kernel asks of it, and how long that takes."""
