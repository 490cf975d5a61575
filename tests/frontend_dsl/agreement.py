"""Plain Python = interpreter = LLVM = C, in the automatic schedule, for sizes known and symbolic."""

from __future__ import annotations

from typing import Any

import numpy as np
from back_ends import difference, execute

BACK_ENDS = ("interp", "llvm", "c")


def agree(
    operator: Any, *args: Any, symbolic: bool = True, back_ends: tuple[str, ...] = BACK_ENDS, **constants: Any
) -> Any:
    """Run everywhere; the results of plain Python (updated arrays, then returned ones)."""
    want = oracle(operator, args, constants)
    shapes = {
        p.name: a.shape for p, a in zip(operator.signature.params, args, strict=True) if isinstance(a, np.ndarray)
    }
    for given in ({}, shapes) if symbolic else (shapes,):
        schedule = operator.schedule(**constants, **given)
        scop = schedule.scop
        for back_end in back_ends:
            got = execute(scop, schedule.tree, [a.copy() if isinstance(a, np.ndarray) else a for a in args], back_end)
            found = difference(want, got)
            assert not found, f"{operator.name} on {back_end}, {'known' if given else 'symbolic'} sizes: {found}"
    return want


def oracle(operator: Any, args: tuple[Any, ...], constants: dict[str, Any]) -> list[np.ndarray]:
    """The plain-Python run: updated arrays, then results."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    results = operator.python(*copies, **constants)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    updated = [c for c, p in zip(copies, operator.signature.params, strict=True) if p.inout]
    return [*updated, *results]
