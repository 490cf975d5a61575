"""What forward substitution costs: work done again, and how often."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, walk
from polyc.poly.rewriting.forward import writer_of
from polyc.poly.rewriting.specialise import fix_params
from polyc.poly.scop import Scop

DIVISION = 4.0
TRANSCENDENTAL = 20.0
GATHER = 4.0  # a load whose neighbours do not lie side by side
EXPENSIVE = {"/": DIVISION, "//": DIVISION, "%": DIVISION, "**": 2 * TRANSCENDENTAL}
CHEAP_CALLS = frozenset(
    (
        "abs",
        "position",
        "min",
        "max",
        "fma",
        "floor",
        "ceil",
        "round",
        "isnan",
        "isinf",
        "where",
        "dot_pairs",
        "widen_pairs",
        "dot_bytes",
        "dot_bf16",
        "pack_bf16",
    )
)


def work_of(scop: Scop, array: str) -> float:
    """Cost of computing one element again, in vector operations: loads of neighbours and what
    does not move along the last dimension (it leaves the inner loop) are free."""
    writer = writer_of(scop, array)
    last = writer.index[-1] if writer.index else None
    lane = next((v.name for v in walk(last) if isinstance(v, Var)), "") if last is not None else ""
    return _work(writer.value, lane)


def _work(e: Expr, lane: str) -> float:
    if isinstance(e, (Const, Var)) or not _moves(e, lane):
        return 0.0
    if isinstance(e, Load):
        beside = bool(e.index) and _unit(e.index[-1], lane) and not any(_moves(i, lane) for i in e.index[:-1])
        return 0.0 if beside else GATHER
    below = sum(_work(c, lane) for c in e.children())
    if isinstance(e, Binary):
        return below + EXPENSIVE.get(e.op, 1.0)
    if isinstance(e, Call):
        return below + (1.0 if e.fn in CHEAP_CALLS else DIVISION if e.fn in ("sqrt", "rsqrt") else TRANSCENDENTAL)
    assert isinstance(e, (Unary, Select, Cast))
    return below + 1.0


def _unit(e: Expr, lane: str) -> bool:
    """Whether a subscript grows by one with the lane."""
    if isinstance(e, Binary) and e.op == "+" and _moves(e.a, lane) != _moves(e.b, lane):
        return _unit(e.a if _moves(e.a, lane) else e.b, lane)
    if isinstance(e, Binary) and e.op == "-" and not _moves(e.b, lane):
        return _unit(e.a, lane)
    return e == Var(lane)


def _moves(e: Expr, lane: str) -> bool:
    return any(isinstance(v, Var) and v.name == lane for v in walk(e))


def reads_per_element(scop: Scop, array: str, sizes: Mapping[str, int]) -> float:
    """How often an element of the local array is read, on average (box counts), where the parameters are `sizes`.

    Raises:
        ScopError: the number depends on a parameter that has no size.
    """
    written, read = 0, 0
    for a in accesses(scop):
        if a.array == array:
            count = _box(fix_params(a.map.domain(), sizes))
            written, read = (written + count, read) if a.write else (written, read + count)
    return read / written if written else 0.0


def _box(s: isl.Set) -> int:
    if s.is_empty():
        return 0
    total = 1
    for k in range(s.dim(isl.dim_type.set)):
        low, high = s.dim_min_val(k), s.dim_max_val(k)
        if not (low.is_int() and high.is_int()):
            raise ScopError("the number of instances depends on sizes")
        total *= int(high.to_python()) - int(low.to_python()) + 1
    return total
