"""Straight lines of a Scop's statements as stores to a few registers.

`s0 = ...; s1 = ...; result` becomes a store of each value in a register buffer, one for each data type, with a place
for as many values as are alive at once. From here on they are what promoted scalars are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, Function, Stmt, Store
from polyc.emit.loop_ir.rewrite import Names, binders, with_bodies
from polyc.poly.dtypes import DType
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Expr, Load, Select, StraightLine, Temp, const_int, rewrite, walk


def write_out(fn: Function) -> Function:
    """`fn` without `StraightLine`.

    Raises:
        BuildError: one stands where it is not always computed.
    """
    names = Names({*fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return _written(s, names)
        bodies = s.bodies()
        new = tuple(visit(b) for b in bodies)
        return s if all(a is b for a, b in zip(bodies, new)) else with_bodies(s, new)

    return replace(fn, body=visit(fn.body))


def _written(store: Store, names: Names) -> Stmt:
    """The store, after stores of what the straight line in its value names."""
    line = next((e for e in walk(store.value) if isinstance(e, StraightLine)), None)
    if line is None:
        return store
    if _lazy(store.value, line):
        raise BuildError(f"a run of assignments is an operand that is not always computed, in a store to {store.array}")
    buffers, where = registers(line, names.fresh)

    def read(e: Expr) -> Expr:
        return where[e.name] if isinstance(e, Temp) else e

    stores: list[Stmt] = []
    for name, value in zip(line.names, line.values, strict=True):
        to = where[name]
        value = rewrite(value, read)
        stores.append(_written(Store(to.array, to.index, value, span=store.span, origin=store.origin), names))
    result = rewrite(line.result, read)
    value = rewrite(store.value, lambda e: result if e == line else e) if store.value is not line else result
    out: Stmt = Block((*stores, _written(replace(store, value=value), names)))
    for buffer in buffers:
        out = Alloc(buffer, out)
    return out


def registers(line: StraightLine, fresh: Callable[[str], str]) -> tuple[list[Buffer], dict[str, Load]]:
    """Register buffers for what the line names, and the element of each name."""
    places = _places(line)
    sizes: dict[DType, int] = {}
    for dtype, place in places.values():
        sizes[dtype] = max(sizes.get(dtype, 0), place + 1)
    buffers = {t: Buffer(fresh("line"), t, (const_int(n),), "register") for t, n in sizes.items()}
    return [*buffers.values()], {n: Load(buffers[t].name, (const_int(k),), t) for n, (t, k) in places.items()}


def _places(line: StraightLine) -> dict[str, tuple[DType, int]]:
    """A place in the buffer of its data type for each value; one is free again after the last use of what was there."""
    values = [*line.values, line.result]
    last: dict[str, int] = {}
    for k, value in enumerate(values):
        for e in walk(value):
            if isinstance(e, Temp):
                last[e.name] = k
    ending: dict[int, list[str]] = {}
    for name, k in last.items():
        ending.setdefault(k, []).append(name)
    free: dict[DType, list[int]] = {}
    count: dict[DType, int] = {}
    places: dict[str, tuple[DType, int]] = {}
    for k, (name, value) in enumerate(zip(line.names, line.values, strict=True)):
        for over in ending.get(k, ()):
            dtype, place = places[over]
            free.setdefault(dtype, []).append(place)
        waiting = free.get(value.dtype)
        if waiting:
            place = waiting.pop()
        else:
            place = count.get(value.dtype, 0)
            count[value.dtype] = place + 1
        places[name] = value.dtype, place
        if name not in last:
            free.setdefault(value.dtype, []).append(place)
    return places


def _lazy(e: Expr, line: StraightLine) -> bool:
    """Whether `line`, inside `e`, is computed only sometimes."""
    if e is line:
        return False
    always = e.children()
    if isinstance(e, Select):
        always = (e.cond,)
    elif isinstance(e, Binary) and e.op in ("and", "or"):
        always = (e.a,)
    inside = [c for c in always if any(x is line for x in walk(c))]
    return not inside or _lazy(inside[0], line)
