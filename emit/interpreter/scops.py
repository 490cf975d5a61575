"""A Scop run in its own order by the reference interpreter: what plain Python is for an operator without a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyc.emit.interpreter.interp import OutOfBounds, poisoned, run
from polyc.emit.lowering.lower import proven_loops
from polyc.emit.names import symbol
from polyc.poly.binding import bind_sizes, evaluate
from polyc.poly.scop import Scop
from polyc.poly.violations import violation


def run_scop(scop: Scop, given: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    """The results of `scop` for arguments by name: arrays (updated in place where the Scop says so) and numbers.

    Raises:
        ArgumentError: an argument is missing or does not fit.
        BoundsError: an access is outside its array.
    """
    function = proven_loops(scop, scop.tree, symbol(scop.name), checks=True)
    sizes = bind_sizes(scop, {n: np.shape(given[n]) for n in scop.args})
    memory = {n: np.asarray(given[n], scop.arrays[n].dtype.np) for n in scop.args}
    for n in scop.results:
        memory[n] = poisoned(tuple(evaluate(e, sizes) for e in scop.arrays[n].outside), scop.arrays[n].dtype)
    record = np.zeros(0, np.uint64)
    if function.checks:
        last = function.buffers[-1]
        record = np.zeros(tuple(evaluate(e, sizes) for e in last.shape), last.dtype.np)
        memory[last.name] = record
    try:
        run(function, memory, sizes)
    except OutOfBounds:
        if not record.any():
            raise
    if record.any():
        raise violation(function.checks, [int(x) for x in record], sizes)
    return [memory[n] for n in scop.results]
