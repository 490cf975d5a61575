"""What neighbouring threads along a loop cost in memory accesses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from polyc.poly.expr import Load, const_int, loads
from polyc.poly.scop import Scop
from polyc.poly.tree import Member
from polyc.scheduler.cost.vector_loops import access_cost, iterator


def cost_along(scop: Scop, warp: int, loop: Member, stmts: Iterable[str]) -> float:
    """Accesses of the statements for each iteration, when neighbouring threads run neighbouring
    iterations of `loop`: a contiguous one is shared by the `warp` threads of a warp, others are not."""
    total = 0.0
    for name in stmts:
        s = scop.statements[name]
        it = iterator(s, loop.schedule[name]) if name in loop.schedule else None
        for e in {s.target, *loads(s.value)}:
            total += 1.0 if it is None else access_cost(_proper(scop, e), it, warp, e == s.target)
    return total


def _proper(scop: Scop, e: Load) -> Load:
    """The access without last dimensions of one element: they separate no neighbours."""
    shape = scop.arrays[e.array].shape
    rank = len(e.index)
    while rank > 1 and shape[rank - 1] == const_int(1):
        rank -= 1
    return replace(e, index=e.index[:rank])
