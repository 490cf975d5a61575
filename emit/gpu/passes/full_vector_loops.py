"""Loops over lanes that are whole or empty.

Where sizes are known to be multiples of a whole access (`Launch.given`), `for l in range(0, min(4, N - 4 x))`
runs four times or not at all: it becomes a loop of four iterations under a condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyc.emit.gpu.passes.guards import guarded
from polyc.emit.gpu.passes.launch_assumptions import divisor, multiples
from polyc.emit.loop_ir.linear import linear, operands, rebuild
from polyc.emit.loop_ir.loops import For, Function, Launch, Stmt
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Expr


def full_vector_loops(fn: Function) -> Function:
    """`fn` with such loops made whole."""
    return replace(fn, body=_visit(fn.body, {}))


def _visit(s: Stmt, known: Mapping[str, int]) -> Stmt:
    if isinstance(s, Launch):
        known = multiples(s.given)
    s = with_bodies(s, tuple(_visit(b, known) for b in s.bodies()))
    limit = full(s) if isinstance(s, For) and s.kind in ("vector", "unroll") and s.step == 1 else None
    if limit is None or not limit.conditions or limit.trip < 2 or not isinstance(s, For):
        return s
    ends = [h for h in operands(s.hi, "min") if h is not limit.hi]
    if operands(s.lo, "max") != (s.lo,) or any(_left(h, s, known) % limit.trip for h in ends):
        return s
    return guarded(replace(s, hi=limit.hi), [Binary(">", h, s.lo, bool_) for h in ends])


def _left(end: Expr, loop: For, known: Mapping[str, int]) -> int:
    """What divides the number of iterations up to `end`."""
    return divisor(rebuild(linear(end) - linear(loop.lo)), known)
