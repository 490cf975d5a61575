"""Stores that fill neighbouring elements in turn (`A[2 * i]`, `A[2 * i + 1]`), as one run of whole vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.emit.llvm.expr import Expressions, Storage
from polyc.emit.llvm.types import scalar_type, vector
from polyc.emit.loop_ir.linear import linear
from polyc.emit.loop_ir.loops import Ramp, Stmt, Store, VLoad
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Load
from polyc.poly.expr import walk as walk_expr

MOST = 4  # stores of a run


def run(stmts: Sequence[Stmt], storage: Mapping[str, Storage]) -> list[Store]:
    """The stores at the beginning that fill whole vectors together, by their element; none where there is no run."""
    first = stmts[0] if stmts else None
    if not isinstance(first, Store) or first.array not in storage or storage[first.array].strides[-1:] != (1,):
        return []
    last = first.index[-1]
    if not isinstance(last, Ramp) or last.stride not in range(2, MOST + 1) or len(stmts) < last.stride:
        return []
    stores = [s for s in stmts[: last.stride] if isinstance(s, Store)]
    ramps = [s.index[-1] for s in stores if s.index]
    if len(ramps) < last.stride or not all(isinstance(e, Ramp) and _alike(e, last) for e in ramps):
        return []
    if any(s.mask is not None or s.array != first.array or s.index[:-1] != first.index[:-1] for s in stores):
        return []
    if any(s.value.lanes != last.count or s.value.dtype == bool_ for s in stores):
        return []
    if any(isinstance(e, Load | VLoad) and e.array == first.array for s in stores[1:] for e in walk_expr(s.value)):
        return []
    ahead = [linear(e.base) - linear(last.base) for e in ramps if isinstance(e, Ramp)]
    if not all(form.is_const for form in ahead):
        return []
    order = sorted(range(len(stores)), key=lambda k: ahead[k].const)
    least = ahead[order[0]].const
    whole = [ahead[k].const - least for k in order] == list(range(last.stride))
    return [stores[k] for k in order] if whole else []


def _alike(a: Ramp, b: Ramp) -> bool:
    return (a.stride, a.count) == (b.stride, b.count)


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
    last = stores[0].index[-1]
    assert isinstance(last, Ramp)
    place = x.address(stores[0].array, (*stores[0].index[:-1], last.base))
    align = stores[0].value.dtype.bytes
    x.f.do(f"store {vector(element, n * count)} {run}, ptr {place.pointer}, align {align}")
    for s in in_order:
        x.ranges.learn(s.array, s.index)
