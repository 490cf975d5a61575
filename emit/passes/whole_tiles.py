"""Tiles that an edge cuts, computed whole.

A register tile on the diagonal of a triangular result has rows of different lengths; one at the end of a size that is
a symbol has as many columns as are left. The long part of it, the loop of its reduction, need not know: it updates
each element of the tile from the element itself and from operands, so what it makes of elements that nothing else in
the tile's life touches is seen by nobody. So it takes the whole tile from memory into registers and back, and its
loops run over all of it, as long as the operands have these elements; what fills the tile and what takes results out
of it keeps its bounds. (`whole_lanes.py` does that for the lanes of one vector whose mask is a number.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from polyc.emit.loop_ir.linear import Interval, Linear, interval, linear, operands, rebuild, variables
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Stmt, Store
from polyc.emit.loop_ir.rewrite import over_bodies, stmt_exprs
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Unary, Var, const_int, rewrite
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass, replace

HARMLESS = ("+", "-", "*", "min", "max")  # for all operands
Edge = frozenset[tuple[frozenset[tuple[Expr, int]], int]]
Region = tuple[tuple[Edge, Edge], ...]
"""Of each dimension of a buffer the bounds from below and from above, in terms of what is outside of the tile and of
the dimensions before (`_dimension`)."""
Shapes = Mapping[str, tuple[Expr, ...]]


@dataclass(frozen=True)
class Whole:
    """`body` instead of a tile's, right where the `conditions` hold; with none of them everywhere."""

    body: Stmt
    conditions: tuple[Expr, ...]


def whole(tile: Alloc, shapes: Shapes, ranges: Mapping[str, Interval], lanes_only: bool = False) -> Whole | None:
    """A register tile whose reductions run over all of it; None where there is none that gains.

    Args:
        tile: the buffer and what happens to it.
        shapes: of the arrays.
        ranges: of the variables of the loops around.
        lanes_only: only vectors are made whole; what cuts the rows goes on to do so.
    """
    buffer = tile.buffer
    if buffer.space != "register" or not all(isinstance(e, Const) for e in buffer.shape):
        return None
    uses = _uses(tile.body, buffer.name, ())
    if uses is None or len(uses) != 1:
        return None
    conditions: dict[Expr, None] = {}
    changed = 0

    def visit(s: Stmt) -> Stmt:
        nonlocal changed
        if isinstance(s, For) and s.kind == "serial" and s.until is None:
            found = _swept(s, buffer, shapes, ranges, lanes_only)
            if found is not None:
                conditions.update(dict.fromkeys(found.conditions))
                changed += 1
                return found.body
        return over_bodies(s, visit) if isinstance(s, Block) else _rolled(s)

    body = visit(tile.body)
    in_memory = replace(buffer, space="local")
    return Whole(Alloc(in_memory, body), tuple(conditions)) if changed else None


def small(tile: Alloc) -> Stmt:
    """The same tile in little code, in memory: for the few that are left."""
    return Alloc(replace(tile.buffer, space="local"), _rolled(tile.body))


def _rolled(s: Stmt) -> Stmt:
    """Loops that are not written out."""
    s = over_bodies(s, _rolled)
    return replace(s, kind="serial", factor=None) if isinstance(s, For) and s.kind == "unroll" else s


# ---- which elements are touched ---------------------------------------------------------------


def _uses(s: Stmt, buffer: str, loops: tuple[For, ...]) -> set[Region] | None:
    """The regions of the buffer that statements touch; None if one is of no simple form."""
    if isinstance(s, (For, Block)):
        inner = (*loops, s) if isinstance(s, For) else loops
        if isinstance(s, For) and any(x.array == buffer for e in stmt_exprs(s) for x in _loads(e)):
            return None
        found: set[Region] = set()
        for b in s.bodies():
            more = _uses(b, buffer, inner)
            if more is None:
                return None
            found |= more
        return found
    touched = [e.index for top in stmt_exprs(s) for e in _loads(top) if e.array == buffer]
    if isinstance(s, Store) and s.array == buffer:
        touched.append(s.index)
    if not touched:
        return set()
    if not isinstance(s, Store):
        return None
    regions = [_region(index, loops) for index in touched]
    return None if None in regions else {r for r in regions if r is not None}


def _loads(e: Expr) -> Iterator[Load]:
    return (x for x in walk_expr(e) if isinstance(x, Load))


def _region(index: tuple[Expr, ...], loops: tuple[For, ...]) -> Region | None:
    """What a subscript runs over: in each dimension one loop, one by one, or nothing."""
    named: dict[str, Linear] = {}  # the loop's variable in terms of the dimension
    edges = []
    own = [_along(e, loops) for e in index]
    names = [x[0].var for x in own if x is not None]
    if len(set(names)) < len(names):
        return None
    for d, (found, e) in enumerate(zip(own, index, strict=True)):
        if found is None:
            if variables(e) & {loop.var for loop in loops}:
                return None
            only = linear(e)
            edges.append((frozenset({_form(only, named)}), frozenset({_form(only.shift(1), named)})))
            continue
        loop, offset = found
        later = {x[0].var for x in own[d:] if x is not None}
        if loop.step != 1 or (variables(loop.lo) | variables(loop.hi)) & later:
            return None
        low = frozenset(_form(linear(e) + offset, named) for e in operands(loop.lo, "max"))
        high = frozenset(_form(linear(e) + offset, named) for e in operands(loop.hi, "min"))
        edges.append((low, high))
        named[loop.var] = Linear(((Var(_dimension(d)), 1),), 0) - offset
    # A loop around that none of the dimensions runs over must not decide where they end.
    around = {loop.var for loop in loops} - set(names)
    used = {v for pair in edges for edge in pair for terms, _ in edge for e, _ in terms for v in variables(e)}
    return None if used & around else tuple(edges)


def _dimension(d: int) -> str:
    """A name for the subscript in dimension `d`; no variable of the loop IR has one like it."""
    return f"[{d}]"


def _along(e: Expr, loops: tuple[For, ...]) -> tuple[For, Linear] | None:
    """The loop that a subscript runs over, and what is added to its variable."""
    form = linear(e)
    by = [loop for loop in loops if loop.var in variables(e)]
    if len(by) != 1 or form.coefficient(Var(by[0].var)) != 1:
        return None
    rest = form - linear(Var(by[0].var))
    return None if any(by[0].var in variables(a) for a, _ in rest.terms) else (by[0], rest)


def _form(form: Linear, named: Mapping[str, Linear]) -> tuple[frozenset[tuple[Expr, int]], int]:
    """A bound with the tile's own variables replaced."""
    for name, value in named.items():
        c = form.coefficient(Var(name))
        if c:
            form = form - linear(Var(name)).scale(c) + value.scale(c)
    return frozenset(form.terms), form.const


# ---- a reduction over all of the tile ---------------------------------------------------------


def _swept(loop: For, buffer: Buffer, shapes: Shapes, ranges: Mapping[str, Interval], lanes_only: bool) -> Whole | None:
    """A loop of updates of the tile with the loops over the tile whole that an edge cuts."""
    path: list[For] = [loop]
    while isinstance(path[-1].body, For):
        path.append(path[-1].body)
    store = path[-1].body
    if not isinstance(store, Store) or store.array != buffer.name or store.mask is not None or not _harmless(store):
        return None
    if any(x.array == buffer.name and x.index != store.index for x in _loads(store.value)):
        return None
    along = [_along(e, tuple(path)) for e in store.index]
    hidden = {x.var for x in path}
    if any(variables(e) & hidden for e, x in zip(store.index, along, strict=True) if x is None):
        return None
    own = [(*x, size) for x, size in zip(along, buffer.shape, strict=True) if x is not None]
    if any(across is loop for across, _, _ in own):
        return None
    inside = dict(ranges)
    for outer in path:  # (serial ones: those over the tile are replaced)
        inside[outer.var] = interval(linear(outer.lo), inside)[0], interval(linear(outer.hi).shift(-1), inside)[1]
    made_whole: dict[str, tuple[Expr, Expr]] = {}
    ends: dict[str, _Ends] = {}
    for across, offset, size in own:
        assert isinstance(size, Const)
        cut = not (isinstance(across.lo, Const) and isinstance(across.hi, Const))
        if cut and (across.kind == "vector" or not lanes_only):
            first, last = offset.scale(-1), offset.scale(-1).shift(int(size.value) - 1)
            made_whole[across.var] = rebuild(first), rebuild(last.shift(1))
            ends[across.var] = [first], [last]
        else:
            highest = [linear(e).shift(-1) for e in operands(across.hi, "min")]
            ends[across.var] = [linear(e) for e in operands(across.lo, "max")], highest
    conditions = _inside(store, ends, shapes, inside) if made_whole else None
    if conditions is None or any(variables(c) & hidden for c in conditions):
        return None
    registers = replace(buffer, name=f"{buffer.name}_whole")
    over = [across for across, _, _ in own]

    def tiled(body: Stmt, loops: list[For]) -> Stmt:
        """`body` in loops, those over the tile whole."""
        for outer in reversed(loops):
            lo, hi = made_whole.get(outer.var, (outer.lo, outer.hi))
            body = replace(outer, lo=lo, hi=hi, body=body)
        return body

    def moved(e: Expr) -> Expr:
        return Load(registers.name, e.index, e.dtype, e.span) if isinstance(e, Load) and e.array == buffer.name else e

    element = Load(buffer.name, store.index, store.value.dtype)
    fetched = Store(registers.name, store.index, element, origin=store.origin)
    update = replace(store, array=registers.name, value=rewrite(store.value, moved))
    kept = Store(buffer.name, store.index, moved(element), origin=store.origin)
    body = Block((tiled(fetched, over), tiled(update, path), tiled(kept, over)))
    return Whole(Alloc(registers, body), tuple(conditions))


def _harmless(store: Store) -> bool:
    """Whether the value can be computed of any operands."""
    return all(
        isinstance(e, (Load, Const, Var, Cast))
        or (isinstance(e, Unary) and e.op == "neg")
        or (isinstance(e, Call) and e.fn == "fma")
        or (isinstance(e, Binary) and e.op in HARMLESS)
        for e in walk_expr(store.value)
    )


_Ends = tuple[list[Linear], list[Linear]]
"""What a variable is at least, and at most: each of these."""


def _inside(
    store: Store, ends: Mapping[str, _Ends], shapes: Shapes, ranges: Mapping[str, Interval]
) -> list[Expr] | None:
    """What must hold for all loads to be inside their arrays over the whole tile; None if that is hard to say."""
    found: dict[Expr, None] = {}
    for load in _loads(store.value):
        if load.array == store.array:
            continue
        if load.array not in shapes:
            return None
        for e, size in zip(load.index, shapes[load.array], strict=True):
            form = linear(e)
            if any(var in variables(a) and a != Var(var) for var in ends for a, _ in form.terms):
                return None
            for room in (form, linear(size) - form.shift(1)):
                least = [*_least(room, ends)]
                lowest = (interval(x, ranges)[0] for x in least)
                if not any(low is not None and low >= 0 for low in lowest):
                    found[Binary(">=", rebuild(least[0]), const_int(0), bool_)] = None
    return list(found)


def _least(form: Linear, ends: Mapping[str, _Ends]) -> Iterator[Linear]:
    """Forms that this one is not below, without the variables that have ends."""
    moving = [(var, c) for var in ends if (c := form.coefficient(Var(var)))]
    for chosen in product(*(ends[var][0 if c > 0 else 1] for var, c in moving)):
        least = form
        for (var, c), end in zip(moving, chosen, strict=True):
            least = least - linear(Var(var)).scale(c) + end.scale(c)
        yield least
