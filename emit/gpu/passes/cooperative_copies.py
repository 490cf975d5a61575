"""Copies of shared buffers are done by all threads of the block together.

The loops of a copy become one loop over the threads: element number `e` of the box goes to thread
`e % threads`, with the dimension that is contiguous in the array fastest, so that neighbouring
threads touch neighbouring elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from polyc.emit.gpu.passes.guards import guarded
from polyc.emit.gpu.passes.launch_assumptions import divisor
from polyc.emit.gpu.passes.wide_accesses import rows_aligned
from polyc.emit.loop_ir.linear import linear, operands, rebuild, variables
from polyc.emit.loop_ir.loops import Buffer, For, If, Let, Stmt, Store
from polyc.emit.loop_ir.rewrite import Names, substitute_stmt
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import bool_, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int
from polyc.poly.records import dataclass
from polyc.poly.target import WIDEST_ACCESS

UNROLLED = 16  # accesses of one thread that are under way together: each of them holds registers
WHOLE = 64  # the same for OpenCL: PoCL computes some loops of few rounds between barriers wrongly (PolyBench's adi)


def copied_buffer(s: Stmt, shared: Mapping[str, Buffer]) -> Buffer | None:
    """The shared buffer that a perfect nest of loops and conditions around one copy fills or empties."""
    loops: list[str] = []
    while isinstance(s, (For, If)):
        if isinstance(s, If):
            if s.orelse is not None:
                return None
            s = s.then
        else:
            loops.append(s.loop)
            s = s.body
    if not isinstance(s, Store) or s.instance is not None or not isinstance(s.value, Load):
        return None
    name = s.origin.buffer if s.origin is not None else None
    ours = name in (s.array, s.value.array) and all(loop.startswith(f"{name}.") for loop in loops)
    return shared.get(name) if name is not None and ours else None


@dataclass(frozen=True)
class Crew:
    """Who copies: `thread`, the number of one of `threads`. `arrays` lie outside the launch and may be read in vectors;
    `known`: what sizes are multiples of; `together`: how many rounds are written out."""

    thread: Expr
    threads: int
    arrays: Mapping[str, Buffer]
    known: Mapping[str, int]
    names: Names
    together: int = UNROLLED


def cooperative(nest: Stmt, buffer: Buffer, crew: Crew, guards: Sequence[Expr]) -> Stmt:
    """The copy that fills or empties a buffer, spread over the threads of the block. The `guards` hold for all threads
    or for none.

    Raises:
        BuildError: the extent of a loop of the copy has no constant bound.
    """
    thread, threads, arrays, known, names = crew.thread, crew.threads, crew.arrays, crew.known, crew.names
    loops, conditions, store = _parts(nest)
    order = _contiguous_last(loops, store, buffer)
    trips = {x.var: _trip(x, store, buffer) for x in loops}
    lanes = _lanes(order, trips, store, buffer, arrays, known)
    radices = [(x.var, trips[x.var][0] // (lanes if x is order[-1] else 1)) for x in order]
    total = math.prod(n for _, n in radices)
    whole = [c for x in loops if (c := trips[x.var][1]) is not None]
    body = guarded(store, [*guards, *whole, *conditions])
    if lanes > 1:
        body = _by_lanes(order, trips, lanes, [*guards, *conditions], store, known)
    if total == 1:
        starts = {x.var: _from(x) for x in loops}
        if lanes > 1:
            body = substitute_stmt(body, {_FIRST: starts.pop(order[-1].var)})
        return _with_values([x for x in loops if x.var in starts], starts, _first(thread, body))
    at = names.fresh(f"{buffer.name}_at")
    digits = _digits(Var(at), radices)
    starts = {}
    for x in loops:
        step = x.step * (lanes if x is order[-1] else 1)
        starts[x.var] = rebuild(linear(_from(x)) + linear(digits[x.var]).scale(step))
    if lanes > 1:  # the variable itself is that of the loop over the lanes
        body = substitute_stmt(body, {_FIRST: starts.pop(order[-1].var)})
    body = _with_values([x for x in loops if x.var in starts], starts, body)
    if total % threads:
        body = If(Binary("<", Var(at), const_int(total), bool_), body)
    if total <= threads:
        return Let(at, thread, body)
    chunk = names.fresh(f"{buffer.name}_chunk")
    value = rebuild(linear(Var(chunk)) + linear(thread))
    factor = crew.together if -(-total // threads) > crew.together else None
    return For(chunk, const_int(0), const_int(total), threads, Let(at, value, body), "unroll", factor, loops[0].loop)


_FIRST = "@first"  # stands for the first lane's value until that has a name


def _lanes(
    order: Sequence[For], trips: Mapping[str, tuple[int, Expr | None]], store: Store, buffer: Buffer,
    arrays: Mapping[str, Buffer], known: Mapping[str, int],
) -> int:  # fmt: skip
    """How many neighbouring elements of the array one thread moves at once."""
    assert isinstance(store.value, Load)
    outside = store.value if store.array == buffer.name else Load(store.array, store.index, store.value.dtype)
    count = WIDEST_ACCESS // buffer.dtype.bytes
    if not order or count not in (2, 4, 8) or outside.array not in arrays:
        return 1
    x = order[-1]
    limit = full(x)
    along = linear(outside.index[-1]).coefficient(Var(x.var)) == 1 and x.step == 1
    plain = limit is not None and operands(x.lo, "max") == (x.lo,)
    others = all(x.var not in variables(e) for y in order for e in (y.lo, y.hi))
    good = along and plain and others and trips[x.var][0] % count == 0
    return count if good and rows_aligned(arrays[outside.array], count, known) else 1


def _by_lanes(
    order: Sequence[For], trips: Mapping[str, tuple[int, Expr | None]], lanes: int, conditions: Sequence[Expr],
    store: Store, known: Mapping[str, int],
) -> Stmt:  # fmt: skip
    """The loop over the lanes, under the conditions on the other loops."""
    x = order[-1]
    first = Var(_FIRST)
    end = rebuild(linear(first).shift(lanes))
    own = [c for c in conditions if x.var in variables(c)]
    rest = [c for y in order[:-1] if (c := trips[y.var][1]) is not None]
    hi: Expr = end
    if trips[x.var][1] is not None:
        if all(divisor(rebuild(linear(h) - linear(x.lo)), known) % lanes == 0 for h in operands(x.hi, "min")):
            rest.append(Binary("<", first, x.hi, bool_))  # all lanes or none
        else:
            hi = Binary("min", end, x.hi, i64)
    body: Stmt = For(x.var, first, hi, 1, guarded(store, own), "vector", lanes, x.loop)
    return guarded(body, [*(c for c in conditions if c not in own), *rest])


def _with_values(loops: Sequence[For], values: Mapping[str, Expr], body: Stmt) -> Stmt:
    for x in reversed(loops):
        body = Let(x.var, values[x.var], body)
    return body


def _first(thread: Expr, body: Stmt) -> Stmt:
    return If(Binary("==", thread, const_int(0), bool_), body) if variables(thread) else body


def _parts(nest: Stmt) -> tuple[list[For], list[Expr], Store]:
    loops: list[For] = []
    conditions: list[Expr] = []
    while not isinstance(nest, Store):
        if isinstance(nest, For):
            loops.append(nest)
            nest = nest.body
        else:
            assert isinstance(nest, If)
            conditions.append(nest.cond)
            nest = nest.then
    return loops, conditions, nest


def _trip(loop: For, store: Store, buffer: Buffer) -> tuple[int, Expr | None]:
    """How many values the loop is spread over, and the condition that one of them is in the loop."""
    below = Binary("<", Var(loop.var), loop.hi, bool_)
    limit = full(loop)
    if limit is not None:
        exact = not limit.conditions and limit.trip * loop.step == _constant_extent(loop)
        return limit.trip, None if exact else below
    size = _subscripted(loop, store, buffer)
    if size is None or loop.step != 1:
        raise BuildError(f"the copy of '{buffer.name}' has a loop '{loop.loop}' without a constant bound")
    return size, Binary("and", Binary(">=", Var(loop.var), loop.lo, bool_), below, bool_)


def _constant_extent(loop: For) -> int | None:
    extent = linear(loop.hi) - linear(loop.lo)
    return extent.const if extent.is_const else None


def _subscripted(loop: For, store: Store, buffer: Buffer) -> int | None:
    """The size of the buffer's dimension whose subscript the loop's variable is."""
    assert isinstance(store.value, Load)
    index = store.index if store.array == buffer.name else store.value.index
    for e, n in zip(index, buffer.shape, strict=True):
        if e == Var(loop.var) and isinstance(n, Const):
            return int(n.value)
    return None


def _from(loop: For) -> Expr:
    """The value of the loop's variable for digit 0."""
    return const_int(0) if full(loop) is None else loop.lo


def _contiguous_last(loops: Sequence[For], store: Store, buffer: Buffer) -> list[For]:
    """The loops, the one that the array's last subscript moves by one with innermost."""
    assert isinstance(store.value, Load)
    outside = store.value.index if store.array == buffer.name else store.index
    fast = [x for x in loops if outside and abs(linear(outside[-1]).coefficient(Var(x.var))) == 1]
    return [x for x in loops if x not in fast[-1:]] + fast[-1:]


def _digits(number: Expr, radices: Sequence[tuple[str, int]]) -> dict[str, Expr]:
    """The mixed-radix digits of a number, the last radix fastest."""
    out: dict[str, Expr] = {}
    for k, (name, radix) in reversed(list(enumerate(radices))):
        out[name] = number if k == 0 else Binary("%", number, const_int(radix), i64)
        number = Binary("//", number, const_int(radix), i64)
    return out


def transposes(nest: Stmt, buffer: Buffer) -> bool:
    """Whether the copy's neighbouring elements of the array lie in different rows of the buffer."""
    loops, _, store = _parts(nest)
    assert isinstance(store.value, Load)
    order = _contiguous_last(loops, store, buffer)
    inside = store.index if store.array == buffer.name else store.value.index
    return bool(order) and order[-1].var not in variables(inside[-1])
