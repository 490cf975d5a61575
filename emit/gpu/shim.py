"""CUDA text run on this machine's CPU: `run_on_shim`, by the name that `docs/gpu.md` gives it."""

from polyc.emit.gpu.devices.shim import ShimError, run_on_shim

__all__ = ["ShimError", "run_on_shim"]
