"""TSVC's loops as libraries of gcc and clang: with vectors, without, and in doubles for the right results."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tsvc.source import write
from examples.tsvc import shape_of
from polyc.poly.records import dataclass

SIZES = {"N": 32000, "M": 256, "L": 256 * 256}
ARRAYS = ("a", "b", "c", "d", "e", "x", "aa", "bb", "cc", "flat")
FAST = ("-O3", "-march=native", "-ffast-math")
PEERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "gcc": ("gcc", ("-fno-tree-vectorize", "-fno-tree-slp-vectorize")),
    "clang": ("clang-19", ("-fno-vectorize", "-fno-slp-vectorize")),
}
"""A peer's compiler and what makes its scalar build."""


@dataclass(frozen=True)
class Loops:
    """A library with all loops; `arrays` are the library's own."""

    path: Path
    kind: type[np.floating[Any]]

    @cached_property
    def library(self) -> ctypes.CDLL:
        found = ctypes.CDLL(str(self.path))
        found.prepare()
        return found

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """TSVC's arrays by the names of `examples.tsvc`."""
        made = {name: self._array("flat_2d_array" if name == "flat" else name, shape_of(name, SIZES), self.kind)
                for name in ARRAYS}  # fmt: skip
        pointer = ctypes.c_void_p.in_dll(self.library, "ip").value
        made["ip"] = np.ctypeslib.as_array((ctypes.c_int32 * SIZES["N"]).from_address(pointer or 0))
        made["indx"] = self._array("indx", (SIZES["N"],), np.int32)
        return made

    def _array(self, symbol: str, shape: tuple[int, ...], kind: Any) -> np.ndarray:
        element = np.ctypeslib.as_ctypes_type(np.dtype(kind))
        memory = (element * int(np.prod(shape))).in_dll(self.library, symbol)
        return np.ctypeslib.as_array(memory).reshape(shape)

    def repeat(self, times: int) -> None:
        """How often a run repeats its loop."""
        ctypes.c_int.in_dll(self.library, "repetitions").value = times

    def run(self, name: str) -> float:
        """Seconds of the repetitions of a loop."""
        function = self.library[f"run_{name}"]
        function.restype = ctypes.c_double
        return float(function())

    @property
    def last(self) -> float:
        """The scalar that the loop made last."""
        element = np.ctypeslib.as_ctypes_type(np.dtype(self.kind))
        return float(element.in_dll(self.library, "last").value)


def build(source: Path, folder: Path) -> dict[str, Loops]:
    """The libraries by name: each peer that is installed, `PEER scalar`, and `exact` (doubles, no fast arithmetic)."""
    made = {}
    ways = {}
    for peer, (compiler, scalar) in PEERS.items():
        if shutil.which(compiler):
            ways[peer] = (compiler, FAST)
            ways[f"{peer} scalar"] = (compiler, (*FAST, *scalar))
    first = next(iter(ways.values()))[0]
    ways["exact"] = (first, ("-O1",))
    for name, (compiler, flags) in ways.items():
        place = folder / name.replace(" ", "_")
        place.mkdir()
        write(source, place, double=name == "exact")
        _compile(compiler, flags, place)
        made[name] = Loops(place / "loops.so", np.float64 if name == "exact" else np.float32)
    return made


def _compile(compiler: str, flags: tuple[str, ...], place: Path) -> None:
    """`loops.so` of the C files in a folder; `tsvc.o`, with the loops, stays beside it."""
    for file in ("tsvc", "common", "caller", "harness"):
        speed = flags if file == "tsvc" else ("-O1",)
        subprocess.run([compiler, *speed, "-std=gnu99", "-w", "-fPIC", "-c", f"{file}.c"], cwd=place, check=True)
    # With -ffast-math gcc links what makes the processor flush denormals, in this process for everyone.
    objects = [f"{file}.o" for file in ("tsvc", "common", "caller", "harness")]
    subprocess.run([compiler, *flags, "-shared", *objects, "-o", "loops.so", "-lm"], cwd=place, check=True)
