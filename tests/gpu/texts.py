"""Running the texts that a GPU would get, and which tests can do so here."""

from __future__ import annotations

import pytest
from executors import CUDA, OPENCL, on_device, on_opencl, on_shim, opencl_here

from polyc.emit.gpu.devices import nvidia, shim

needs_shim = pytest.mark.skipif(shim.compiler() is None, reason="no C++ compiler: CUDA text cannot run here")
needs_nvidia = pytest.mark.skipif(nvidia.compiler() is None, reason=f"no CUDA compiler ({nvidia.LOOKED_FOR})")
needs_opencl = pytest.mark.skipif(bool(opencl_here()), reason=opencl_here())

__all__ = ["CUDA", "OPENCL", "needs_nvidia", "needs_opencl", "needs_shim", "on_device", "on_opencl", "on_shim"]
