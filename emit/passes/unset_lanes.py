"""Lanes of local arrays that nobody writes, but vectors load: they begin as 0.

The last vector of a partial tile is loaded whole where its array has room for it (`vector_expr.py`). What the other
lanes compute is seen by nobody, but it may take time: memory that nobody has written holds halves of addresses and
small integers, which are denormal numbers. Intel's cores take an assist in microcode for each operation on one (Intel,
"64 and IA-32 Architectures Optimization Reference Manual", on floating-point assists). Results do not depend on this
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from polyc.emit.loop_ir.linear import Interval, interval, linear, rebuild, variables
from polyc.emit.loop_ir.loops import Alloc, Block, Broadcast, Buffer, For, If, Ramp, Stmt, Store
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.poly.expr import Const, Expr, Var, const_int
from polyc.poly.records import dataclass

Names = Callable[[str], str]
Place = tuple[Expr | None, ...]
"""Subscripts of a vector in an array: the last one is a `Ramp`, None is all of a dimension."""


@dataclass(frozen=True)
class WholeLoad:
    """A vector load without a mask in a chunk whose last lanes no iteration has.

    Attributes:
        index: its subscripts, one of them a vector.
        ends: the variables that decide how many lanes have an iteration.
    """

    index: tuple[Expr, ...]
    ends: frozenset[str]


def set_lanes(body: Stmt, loads: Mapping[str, Iterable[WholeLoad]], names: Names) -> Stmt:
    """`body` with zeros in what such loads read of local arrays of floating-point numbers, before anything else is
    written there.

    Args:
        body: loops with vectors.
        loads: by array; names of buffers are unique.
        names: gives variables that are not taken yet.
    """

    def visit(s: Stmt) -> Stmt:
        s = with_bodies(s, tuple(visit(b) for b in s.bodies()))
        if not isinstance(s, Alloc) or s.buffer.space not in ("local", "heap") or not s.buffer.dtype.is_float:
            return s
        places = {p for load in loads.get(s.buffer.name, ()) if (p := _place(s.buffer, load)) is not None}
        if places:
            written = _Written(s.buffer.name, frozenset().union(*map(_lanes, places))).of(s.body, {})
            places = {p for p in places if not written.issuperset(_lanes(p))}
        largest = [p for p in places if not any(p != q and _within(p, q) for q in places)]
        zeros = [_zeros(s.buffer, p, names) for p in sorted(largest, key=repr)]
        return replace(s, body=Block((*zeros, s.body))) if zeros else s

    return visit(body)


def _within(a: Place, b: Place) -> bool:
    """Whether the lanes of one place are lanes of another."""
    return a[:-1] == b[:-1] and set(_lanes(a)) <= set(_lanes(b))


def _lanes(place: Place) -> range:
    lanes = place[-1]
    assert isinstance(lanes, Ramp) and isinstance(lanes.base, Const)
    return range(int(lanes.base.value), int(lanes.base.value) + lanes.count)


def _place(buffer: Buffer, load: WholeLoad) -> Place | None:
    """The subscripts of the lanes, None in dimensions that they are read along; None where they lie elsewhere in every
    iteration, or not side by side.

    A partial tile is the last one: a subscript that decides how many lanes there are stands for the dimension's end.
    """
    *outer, lanes = load.index
    if not isinstance(lanes, Ramp) or lanes.stride != 1 or not isinstance(lanes.base, Const):
        return None

    def of(e: Expr, size: Expr) -> Expr | None:
        if isinstance(e, Const):
            return e
        return rebuild(linear(size).shift(-1)) if variables(e) & load.ends else None

    return (*(of(e, n) for e, n in zip(outer, buffer.shape)), lanes)


@dataclass(frozen=True)
class _Written:
    """Which of some last subscripts of an array are stored to under no condition, as if loops left nothing out."""

    array: str
    asked: frozenset[int]

    def of(self, s: Stmt, ranges: Mapping[str, Interval]) -> set[int]:
        """By a statement inside loops with these ranges."""
        if isinstance(s, If):
            return set()
        if isinstance(s, For):
            span = interval(linear(s.lo), ranges)[0], interval(linear(s.hi).shift(-1), ranges)[1]
            ranges = {**ranges, s.var: span}
        if isinstance(s, Store) and s.array == self.array and s.mask is None:
            last = s.index[-1]
            first, beyond = (last.base, last.stride * (last.count - 1)) if isinstance(last, Ramp) else (last, 0)
            low, high = interval(linear(first), ranges)
            known = low is not None and high is not None
            return {n for n in self.asked if low <= n <= high + beyond} if known else set()
        return set[int]().union(*(self.of(b, ranges) for b in s.bodies()))


def _zeros(buffer: Buffer, place: Place, names: Names) -> Stmt:
    """A loop for each open dimension, and one vector of zeros inside."""
    loops = [(names(f"{buffer.name}_unset"), n) if e is None else None for e, n in zip(place, buffer.shape)]
    index = tuple(e if e is not None else Var(x[0]) for e, x in zip(place, loops) if e is not None or x is not None)
    lanes = index[-1].lanes
    out: Stmt = Store(buffer.name, index, Broadcast(Const(0.0, buffer.dtype), lanes, buffer.dtype))
    for x in reversed(loops):
        if x is not None:
            out = For(x[0], const_int(0), x[1], 1, out)
    return out
