"""Kernels of the CPU among the steps of a GPU's plan: machine code, run on the host's copy of the plan's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc.emit import compile as emit_compile
from polyc.graph_driver.backends.cpu import LLVM
from polyc.graph_driver.execution.run_memory import address
from polyc.poly.records import dataclass
from polyc.poly.target import Target


@dataclass(frozen=True)
class NativeKernel:
    """Machine code of one kernel, and the names of its arrays in the order of a step's arguments."""

    image: bytes
    order: tuple[str, ...]


class Natives:
    """The kernels of a plan that are the CPU's, loaded."""

    def __init__(self, kernels: Mapping[str, NativeKernel], machine: Target) -> None:
        """Raises `BuildError`: this machine does not run them."""
        if kernels:
            emit_compile.check_runs_here(machine)
        self._loaded: dict[str, tuple[Any, Any]] = {}
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        for symbol, kernel in kernels.items():
            native = emit_compile.load(kernel.image, symbol, LLVM.name)
            self._loaded[symbol] = native, kind(native.address)

    @property
    def symbols(self) -> frozenset[str]:
        """Those of its kernels."""
        return frozenset(self._loaded)

    def run(self, symbol: str, arrays: Sequence[np.ndarray]) -> None:
        """On the bytes of its arrays, which are where they are during the call."""
        pointers = (ctypes.c_void_p * max(1, len(arrays)))(*[address(a) for a in arrays])
        sizes = (ctypes.c_int64 * 1)()
        self._loaded[symbol][1](pointers, sizes, None)
