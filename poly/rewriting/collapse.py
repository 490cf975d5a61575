"""Neighbouring loops that always walk neighbouring dimensions together become one loop over one dimension.

`Y[i, j, k] = f(X[i, j, k], Z[j, k])` of sizes 64 x 654 x 3 becomes `Y[i, w] = f(X[i, w], Z[w])` of 64 x 1962: the same
row-major memory and the same order of execution, but rows that are long enough for vectors. Loops are merged where
every statement in them uses both iterators side by side, in the same order, in neighbouring subscripts of which the
inner one covers its dimension, or uses neither; arrays follow, and with them all loops over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

import islpy as isl

from polyc.poly.cache import per_scop
from polyc.poly.expr import Const, Expr, Load, Var, const_int, loads, rewrite
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Sequence, walk

Loops = tuple[Member, Member]


def collapse(scop: Scop) -> Scop:
    """The same algorithm over as few dimensions as possible; `scop` itself where nothing can be merged."""
    if scop.params or any(s.dynamic for s in scop.statements.values()):
        return scop
    while (unit := _first(scop)) is not None:
        scop = _merged(scop, unit)
    return scop


class _Apart(Exception):
    """Two loops cannot become one (internal signal)."""


@dataclass
class _Unit:
    """What becomes one together: pairs of loops, iterators by statement, dimensions `k, k + 1` by array."""

    loops: list[Loops] = field(default_factory=list)
    iters: dict[str, tuple[str, str]] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)


def _first(scop: Scop) -> _Unit | None:
    if not all(_plain(scop, n) for n in walk(scop.tree)):
        return None
    bands = [n for n in walk(scop.tree) if isinstance(n, Band)]
    pairs = [pair for b in bands for pair in zip(b.members, b.members[1:], strict=False)]
    for pair in pairs:
        unit = _Unit()
        try:
            _take_loops(scop, pairs, unit, pair)
        except _Apart:
            continue
        return unit
    return None


def _plain(scop: Scop, node: Node) -> bool:
    """Whether a node of the tree is one of the program as written: loops over iterators, whole statements."""
    if isinstance(node, Band):
        return all(_iterator(scop.statements[n], pa) for m in node.members for n, pa in m.schedule.items())
    if isinstance(node, Filter):
        return all(part.is_equal(scop.statements[n].domain) for n, part in node.domain.items())
    return isinstance(node, (Leaf, Sequence))


# ---- what belongs together -------------------------------------------------------------------------


def _take_loops(scop: Scop, pairs: list[Loops], unit: _Unit, pair: Loops) -> None:
    """Add a pair of loops, and all that must change with it.

    Raises:
        _Apart: something there needs the two loops.
    """
    if pair in unit.loops:
        return
    outer, inner = pair
    if any(m.name in (outer.name, inner.name) for p in unit.loops for m in p) or set(outer.schedule) != set(
        inner.schedule
    ):
        raise _Apart
    if any(m.kind != "serial" for m in pair):
        raise _Apart
    unit.loops.append(pair)
    for name in outer.schedule:
        s = scop.statements[name]
        u, v = _iterator(s, outer.schedule[name]), _iterator(s, inner.schedule[name])
        if u is None or v is None or u == v or name in unit.iters:
            raise _Apart
        unit.iters[name] = u, v
        unit.sizes[name] = _sizes(s, u, v)
        for at in _accesses(s):
            k = _together(at.index, u, v)
            if k is not None:
                _take_dims(scop, pairs, unit, at.array, k)
        for e in (s.value, *([] if s.predicate is None else [s.predicate])):
            if _used(e) & {u, v}:
                raise _Apart


def _take_dims(scop: Scop, pairs: list[Loops], unit: _Unit, array: str, k: int) -> None:
    """Add dimensions `k` and `k + 1` of an array, and all loops over them. Raises `_Apart`."""
    if array in unit.dims:
        if unit.dims[array] != k:
            raise _Apart
        return
    width = scop.arrays[array].shape[k + 1]
    if not isinstance(width, Const) or not isinstance(scop.arrays[array].shape[k], Const):
        raise _Apart
    unit.dims[array] = k
    for s, at in _uses(scop).get(array, ()):
        a, b = at.index[k : k + 2]
        if isinstance(a, Const) and isinstance(b, Const):
            continue
        if not isinstance(a, Var) or not isinstance(b, Var):
            raise _Apart
        if s.name not in unit.iters:
            _take_loops(scop, pairs, unit, _loops_of(pairs, s, a.name, b.name))
        if unit.iters.get(s.name) != (a.name, b.name) or unit.sizes[s.name][1] != width.value:
            raise _Apart


def _loops_of(pairs: list[Loops], s: Statement, u: str, v: str) -> Loops:
    """The neighbouring loops over two iterators. Raises `_Apart` where there are none."""
    for outer, inner in pairs:
        if s.name in outer.schedule and s.name in inner.schedule:
            if (_iterator(s, outer.schedule[s.name]), _iterator(s, inner.schedule[s.name])) == (u, v):
                return outer, inner
    raise _Apart


def _together(index: tuple[Expr, ...], u: str, v: str) -> int | None:
    """The subscript that is `u`, followed by `v`; None when neither occurs. Raises `_Apart` for any other use."""
    used = [_used(e) & {u, v} for e in index]
    if not any(used):
        return None
    places = [k for k, e in enumerate(index[:-1]) if e == Var(u) and index[k + 1] == Var(v)]
    if len(places) != 1 or sum(bool(x) for x in used) != 2:
        raise _Apart
    return places[0]


def _used(e: Expr) -> set[str]:
    """Variables of an expression outside of the subscripts of loads."""
    if isinstance(e, Load):
        return set()
    if isinstance(e, Var):
        return {e.name}
    return {n for c in e.children() for n in _used(c)}


def _accesses(s: Statement) -> Iterator[Load]:
    """All loads of a statement, those in subscripts too, and its store."""
    yield s.target
    for e in (s.value, *s.index, *([] if s.predicate is None else [s.predicate])):
        yield from loads(e)


@per_scop
def _uses(scop: Scop) -> dict[str, list[tuple[Statement, Load]]]:
    """The accesses of each array, statement by statement."""
    found: dict[str, list[tuple[Statement, Load]]] = {}
    for s in scop.statements.values():
        for at in _accesses(s):
            found.setdefault(at.array, []).append((s, at))
    return found


def _iterator(s: Statement, time: isl.PwAff) -> str | None:
    """The iterator that is the loop's time itself."""
    if time.n_piece() != 1:
        return None
    aff = time.get_pieces()[0][1]
    if aff.dim(isl.dim_type.div) or not aff.get_constant_val().is_zero():
        return None
    values = [aff.get_coefficient_val(isl.dim_type.in_, k) for k in range(len(s.iters))]
    moving = [k for k, v in enumerate(values) if not v.is_zero()]
    return s.iters[moving[0]] if len(moving) == 1 and values[moving[0]].is_one() else None


def _sizes(s: Statement, u: str, v: str) -> tuple[int, int]:
    """The sizes of the two loops, which begin at 0 and depend on nothing. Raises `_Apart`."""
    found = []
    for name in (u, v):
        k = s.iters.index(name)
        low, high = s.domain.dim_min_val(k), s.domain.dim_max_val(k)
        if not low.is_zero() or not high.is_int():
            raise _Apart
        found.append(int(high.to_python()) + 1)
    positions = [s.iters.index(u), s.iters.index(v)]
    whole = s.domain
    for k in positions:
        whole = whole.eliminate(isl.dim_type.set, k, 1)
    for k, n in zip(positions, found, strict=True):
        whole = whole.lower_bound_val(isl.dim_type.set, k, isl.Val(0))
        whole = whole.upper_bound_val(isl.dim_type.set, k, isl.Val(n - 1))
    if not whole.is_equal(s.domain):
        raise _Apart
    return found[0], found[1]


# ---- merging ---------------------------------------------------------------------------------------


def _merged(scop: Scop, unit: _Unit) -> Scop:
    """The Scop after one merge; the new iterator has the name of the outer one."""
    arrays, widths = dict(scop.arrays), dict[str, int]()
    for name, k in unit.dims.items():
        shape = arrays[name].shape
        rows, width = (int(e.value) for e in shape[k : k + 2] if isinstance(e, Const))
        arrays[name] = replace(arrays[name], shape=(*shape[:k], const_int(rows * width), *shape[k + 2 :]))
        widths[name] = width

    def index(array: str, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if array not in unit.dims:
            return at
        k = unit.dims[array]
        a, b = at[k : k + 2]
        one = (
            const_int(int(a.value) * widths[array] + int(b.value))
            if isinstance(a, Const) and isinstance(b, Const)
            else a
        )
        return (*at[:k], one, *at[k + 2 :])

    def move(e: Expr) -> Expr:
        return replace(e, index=index(e.array, e.index)) if isinstance(e, Load) else e

    def moved(s: Statement) -> Statement:
        s = replace(
            s,
            index=index(s.array, tuple(rewrite(e, move) for e in s.index)),
            value=rewrite(s.value, move),
            predicate=None if s.predicate is None else rewrite(s.predicate, move),
        )
        return _one_iterator(s, *unit.iters[s.name], *unit.sizes[s.name]) if s.name in unit.iters else s

    statements = {n: moved(s) for n, s in scop.statements.items()}
    tree = _tree(scop, scop.tree, {m.name for _, m in unit.loops}, statements)
    return replace(scop, arrays=arrays, statements=statements, tree=tree)


def _one_iterator(s: Statement, u: str, v: str, rows: int, width: int) -> Statement:
    """The statement whose iterator `u` counts what `u` and `v` counted."""
    iters = tuple(n for n in s.iters if n != v)
    domain = s.domain.project_out(isl.dim_type.set, s.iters.index(v), 1)
    k = iters.index(u)
    domain = domain.eliminate(isl.dim_type.set, k, 1)
    domain = domain.lower_bound_val(isl.dim_type.set, k, isl.Val(0))
    domain = domain.upper_bound_val(isl.dim_type.set, k, isl.Val(rows * width - 1)).set_tuple_name(s.name)
    for position, name in enumerate(iters):
        domain = domain.set_dim_name(isl.dim_type.set, position, name)
    return replace(s, iters=iters, domain=domain)


def _tree(scop: Scop, node: Node, dropped: set[str], new: Mapping[str, Statement]) -> Node:
    """The tree without the inner loops of the pairs, over the new domains."""
    if isinstance(node, Filter):
        return Filter({n: new[n].domain for n in node.domain}, _tree(scop, node.child, dropped, new))
    if isinstance(node, Band):
        members = tuple(
            replace(m, schedule={n: _time(scop.statements[n], pa, new[n]) for n, pa in m.schedule.items()})
            for m in node.members
            if m.name not in dropped
        )
        return Band(members, _tree(scop, node.child, dropped, new), node.permutable)
    return node.with_children(tuple(_tree(scop, c, dropped, new) for c in node.children()))


def _time(old: Statement, time: isl.PwAff, new: Statement) -> isl.PwAff:
    """The time of a loop, which is an iterator of its own (`_first` saw to it)."""
    if old is new:
        return time
    name = _iterator(old, time)
    assert name is not None
    space = isl.LocalSpace.from_space(new.domain.get_space())
    return isl.PwAff.from_aff(isl.Aff.var_on_domain(space, isl.dim_type.set, new.iters.index(name)))
