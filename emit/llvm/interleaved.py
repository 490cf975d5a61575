"""Stores that fill neighbouring elements in turn (`A[2 * i]`, `A[2 * i + 1]`, or `A[i, 0]`, `A[i, 1]`), as one run of
whole vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.emit.llvm.expr import Expressions, Storage
from polyc.emit.llvm.types import scalar_type, vector
from polyc.emit.loop_ir.linear import Linear, linear
from polyc.emit.loop_ir.loops import Ramp, Stmt, Store, accesses
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Expr
from polyc.poly.records import dataclass

MOST = 4  # stores of a run


@dataclass(frozen=True)
class Lanes:
    """Where the lanes of a vector store go: `step` elements apart, from `first` beyond the row that `outer` names."""

    outer: tuple[Expr, ...]
    first: Linear
    step: int
    count: int

    def beside(self, other: Lanes) -> int | None:
        """How many elements further on the lanes of another one begin, where both are as far apart."""
        if (self.outer, self.step, self.count) != (other.outer, other.step, other.count):
            return None
        ahead = other.first - self.first
        return ahead.const if ahead.is_const else None


def run(stmts: Sequence[Stmt], storage: Mapping[str, Storage]) -> list[Store]:
    """The stores at the beginning that fill whole vectors together, by their element; none where there is no run."""
    first = stmts[0] if stmts else None
    lanes = _lanes(first, storage) if isinstance(first, Store) else None
    if not isinstance(first, Store) or lanes is None or len(stmts) < lanes.step:
        return []
    ahead: dict[int, Store] = {}
    for k, s in enumerate(stmts[: lanes.step]):
        own = _lanes(s, storage) if isinstance(s, Store) and s.array == first.array else None
        at = None if own is None else lanes.beside(own)
        if not isinstance(s, Store) or at is None:
            return []
        if k and any(e.array == first.array for top in (s.value, *s.index) for e in accesses(top)):
            return []
        ahead[at] = s
    order = sorted(ahead)
    whole = [at - order[0] for at in order] == list(range(lanes.step))
    return [ahead[at] for at in order] if whole else []


def _lanes(s: Store, storage: Mapping[str, Storage]) -> Lanes | None:
    """The lanes of a store with all of them, a few elements apart: along any dimension (`A[2 * i]`, `A[i, 0]`)."""
    moved = [k for k, e in enumerate(s.index) if e.lanes > 1]
    if len(moved) != 1 or s.array not in storage or s.mask is not None or s.value.dtype == bool_:
        return None
    (at,) = moved
    ramp, strides = s.index[at], storage[s.array].strides[at:]
    if not isinstance(ramp, Ramp) or s.value.lanes != ramp.count:
        return None
    numbers = [stride for stride in strides if isinstance(stride, int)]
    if len(numbers) < len(strides):
        return None
    first = Linear((), 0)
    for e, stride in zip((ramp.base, *s.index[at + 1 :]), numbers, strict=True):
        first += linear(e).scale(stride)
    step = ramp.stride * numbers[0]
    return Lanes(s.index[:at], first, step, ramp.count) if 2 <= step <= MOST else None


def store(x: Expressions, stores: Sequence[Store], in_order: Sequence[Store]) -> None:
    """Evaluate the values in the order of the program, and write the elements of all as one vector."""
    made = {id(s): x.to_memory(x.value(s.value)) for s in in_order}
    values = [made[id(s)] for s in stores]
    n, count = values[0].lanes, len(values)
    whole = 1 << (count - 1).bit_length()
    parts = [v.ref for v in values] + ["poison"] * (whole - count)
    width, element = n, scalar_type(values[0].dtype)
    while len(parts) > 1:
        lanes = ", ".join(f"i32 {k}" for k in range(2 * width))
        pairs, type_ = zip(parts[::2], parts[1::2], strict=True), vector(element, width)
        parts = [x.f.emit(f"shufflevector {type_} {a}, {type_} {b}, <{2 * width} x i32> <{lanes}>") for a, b in pairs]
        width *= 2
    order = ", ".join(f"i32 {n * k + lane}" for lane in range(n) for k in range(count))
    type_ = vector(element, width)
    run = x.f.emit(f"shufflevector {type_} {parts[0]}, {type_} poison, <{n * count} x i32> <{order}>")
    begin = tuple(e.base if isinstance(e, Ramp) else e for e in stores[0].index)
    place = x.address(stores[0].array, begin)
    align = stores[0].value.dtype.bytes
    x.f.do(f"store {vector(element, n * count)} {run}, ptr {place.pointer}, align {align}")
    for s in in_order:
        x.ranges.learn(s.array, s.index)
