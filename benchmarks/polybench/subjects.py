"""The kernels as both sides take them: polyc's operator, arguments by name, and what a result must equal."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from math import isqrt, log2
from types import ModuleType
from typing import Any

import numpy as np

from examples.polybench import MODULES, inout_flags
from polyc.poly.records import dataclass

CLASSES = {
    "dense algebra": "correlation covariance gemm symm syr2k syrk trmm 2mm 3mm doitgen cholesky gramschmidt lu ludcmp",
    "bandwidth": "gemver gesummv atax bicg mvt trisolv",
    "recurrences and dynamic programming": "durbin deriche floyd-warshall nussinov adi seidel-2d",
    "stencils": "fdtd-2d heat-3d jacobi-1d jacobi-2d",
}
CLASS_OF = {kernel: name for name, kernels in CLASSES.items() for kernel in kernels.split()}
INTEGERS = ("floyd-warshall", "nussinov")  # these have no f32
SIZES = ("MINI", "SMALL", "MEDIUM", "LARGE")
NEAR = ("powers", "primes")
TOLERANCE = {4: 1e-3, 8: 1e-9}  # of the largest magnitude of an array, by the bytes of an element


@dataclass(frozen=True)
class Subject:
    """A kernel at one size: `sizes` by name, `constants` at compile time, `values` of the arguments by name."""

    name: str
    operator: Any
    sizes: Mapping[str, int]
    constants: Mapping[str, Any]
    values: Mapping[str, Any]
    reference: Any

    @property
    def updated(self) -> list[str]:
        """Arguments that the kernel updates in place."""
        flags = zip(self.values, inout_flags(self.operator), strict=True)
        return [name for name, inout in flags if inout]

    def known(self) -> dict[str, Any]:
        """What a specialised compilation is told: constants, and sizes of arrays."""
        dims = set(self.operator.signature.dims())
        return {**self.constants, **{n: v for n, v in self.sizes.items() if n in dims}}


def subject(name: str, size: str, single: bool = False, seed: int = 0) -> Subject:
    """The kernel of PolyBench's name with random inputs; `single` has f32 in the place of f64.

    `size`: `MINI` to `LARGE`; followed by `-powers` or `-primes`, with the numbers nearby (`near`) for all sizes.
    """
    module: Any = import_module(f"examples.polybench.{MODULES[name]}")
    if single:
        module = in_f32(module)
    size, _, kind = size.partition("-")
    sizes = {n: near(v, kind) for n, v in module.SIZES[size].items()}
    values = module.inputs(sizes, np.random.default_rng(seed))
    operator = getattr(module, MODULES[name])
    constants = {k: v for k, v in values.items() if isinstance(v, int)}
    kept = {k: _narrowed(v) if single else v for k, v in values.items() if k not in constants}
    return Subject(name, operator, sizes, constants, kept, module.reference)


def near(number: int, kind: str) -> int:
    """The number; with `powers` the nearest power of two, with `primes` the next prime number from it on."""
    if kind == "powers":
        return 1 << round(log2(number))
    while kind == "primes" and any(number % k == 0 for k in range(2, isqrt(number) + 1)):
        number += 1
    return number


def _narrowed(value: Any) -> Any:
    floats = isinstance(value, np.ndarray) and value.dtype == np.float64
    return value.astype(np.float32) if floats else value


def in_f32(module: ModuleType) -> ModuleType:
    """The module's text once more, with the name `f64` standing for f32: its lines are those of the file."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.alias) and node.name == "f64":
            node.name, node.asname = "f32", "f64"
    made = ModuleType(f"{module.__name__}_f32")
    made.__file__ = module.__file__
    sys.modules[made.__name__] = made
    exec(compile(tree, str(module.__file__), "exec"), made.__dict__)
    return made


def defined(name: str, sizes: Mapping[str, int], array: np.ndarray) -> np.ndarray:
    """The part of a result that rounding does not decide.

    In gramschmidt with more columns than rows (PolyBench's LARGE) the columns behind the rows are what rounding left
    of zero, scaled to length 1.
    """
    return array[..., : sizes["M"]] if name == "gramschmidt" else array


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest magnitude; infinite when something is no number."""
    apart = np.abs(got.astype(np.float64) - wanted)
    worst = float(apart.max(initial=0.0)) / max(float(np.abs(wanted).max(initial=0.0)), 1e-300)
    return worst if np.isfinite(worst) else float("inf")
