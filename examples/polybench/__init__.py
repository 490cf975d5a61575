"""The 30 kernels of PolyBench/C 4.2.1 in the DSL, with the sizes MINI to LARGE.

Every module defines the operator (named as the module), `SIZES`, `inputs(size, rng)`
(arguments by name, well conditioned; compile-time constants too) and `reference(**inputs)`,
an independent NumPy formulation that returns what `Kernel.run` returns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from polyc import op

# PolyBench's name -> module
MODULES = {
    name: {"2mm": "two_mm", "3mm": "three_mm"}.get(name, name.replace("-", "_"))
    for name in (
        "correlation covariance "
        "gemm gemver gesummv symm syr2k syrk trmm "
        "2mm 3mm atax bicg doitgen mvt "
        "cholesky durbin gramschmidt lu ludcmp trisolv "
        "deriche floyd-warshall nussinov "
        "adi fdtd-2d heat-3d jacobi-1d jacobi-2d seidel-2d"
    ).split()
}


@dataclass(frozen=True)
class Kernel:
    """One kernel with its sizes and data. `operator` may reorder reductions, `exact` must not."""

    name: str
    operator: Any
    exact: Any
    sizes: dict[str, dict[str, int]]
    inputs: Callable[[dict[str, int], np.random.Generator], dict[str, Any]]
    reference: Callable[..., tuple[np.ndarray, ...]]

    def arguments(self, size: str, seed: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """(positional arguments, compile-time constants) for a size (`MINI`, `SMALL`, `MEDIUM`, `LARGE`)."""
        values = self.inputs(self.sizes[size], np.random.default_rng(seed))
        constants = {k: v for k, v in values.items() if isinstance(v, int)}
        return [v for k, v in values.items() if k not in constants], constants

    def expected(self, size: str, seed: int = 0) -> tuple[np.ndarray, ...]:
        """What `run` returns, computed by NumPy."""
        return self.reference(**self.inputs(self.sizes[size], np.random.default_rng(seed)))


def run(call: Callable[..., Any], operator: Any, arguments: list[Any], **constants: Any) -> tuple[np.ndarray, ...]:
    """`call` on copies of the arguments: the `inout` arrays afterwards, then the results."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    results = call(*copies, **constants)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    return (*(c for c, updated in zip(copies, inout_flags(operator), strict=True) if updated), *results)


def inout_flags(operator: Any) -> list[bool]:
    """Which positional parameters are updated in place."""
    return [p.inout for p in operator.signature.params]


def load(name: str) -> Kernel:
    """The kernel with PolyBench's name."""
    module = import_module(f"examples.polybench.{MODULES[name]}")
    operator = getattr(module, MODULES[name])
    exact = op(reassociate=False)(operator.fn)
    return Kernel(name, operator, exact, module.SIZES, module.inputs, module.reference)
