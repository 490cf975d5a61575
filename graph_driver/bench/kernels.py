"""Running a compiled operator on random arguments for its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyc.emit.kernel import Kernel
from polyc.poly.binding import evaluate
from polyc.poly.expr import loads
from polyc.poly.scop import Array, Scop, Statement

SECONDS = 0.5  # of runs, at least
FEWEST = 5  # runs, at least


def random_arguments(scop: Scop) -> list[Any]:
    """An argument each of a Scop without free sizes, in the order of `scop.args`.

    Positive floats around 1, small integers; 0 where a value is a subscript or a bound.
    """
    places = {load.array for s in scop.statements.values() for e in (*s.index, *_bounds(s)) for load in loads(e)}
    for s in scop.statements.values():
        places |= {x.array for load in loads(s.value) for e in load.index for x in loads(e)}
    rng = np.random.default_rng(17)
    return [_argument(scop.arrays[n], n in places, rng) for n in scop.args]


def runner(kernel: Kernel, arguments: Sequence[Any]) -> Callable[[], list[np.ndarray]]:
    """The kernel, of a Scop without free sizes, on copies of the arguments; a run gives what it wrote.

    Sizes are bound once: a run is the native call alone, but for what Python takes to make one.
    """
    scop = kernel.scop
    own = [np.array(a) for a in arguments]
    results = [np.empty(_shape(scop.arrays[n]), scop.arrays[n].dtype.np) for n in scop.results]
    written = results + [a for n, a in zip(scop.args, own, strict=True) if scop.arrays[n].kind == "inout"]
    bound = kernel.bind(tuple(a.shape for a in own))

    def run_once() -> list[np.ndarray]:
        kernel.run([*own, *results], bound)
        return written

    return run_once


def shortest_seconds(run: Callable[[], object]) -> float:
    """The shortest of `FEWEST` runs and more, after one that is not counted; all together take `SECONDS` or longer.

    What Python takes to call a kernel is counted in: some microseconds.
    """
    run()
    best, runs, end = float("inf"), 0, time.perf_counter() + SECONDS
    while runs < FEWEST or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return best


def _bounds(s: Statement) -> list[Any]:
    return [e for d in s.dynamic for e in (d.lo, d.hi)]


def _shape(array: Array) -> tuple[int, ...]:
    return tuple(evaluate(e, {}) for e in array.shape)


def _argument(array: Array, subscript: bool, rng: np.random.Generator) -> Any:
    shape = _shape(array)
    if array.dtype.is_float:
        values = rng.uniform(0.5, 1.5, shape).astype(array.dtype.np)
    elif subscript:
        values = np.zeros(shape, array.dtype.np)
    else:
        values = rng.integers(0, 2, shape).astype(array.dtype.np)
    return values[()] if array.scalar else values
