"""The slow truth: instances enumerated one by one, with no isl relation between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from polyc.poly.access import accumulator_of
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var, walk
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Node, Sequence

Instance = tuple[str, tuple[int, ...]]
Time = tuple[int, ...]


class Unknown(Exception):
    """The value depends on memory."""


@dataclass(frozen=True)
class Touch:
    array: str
    element: tuple[int, ...]
    write: bool
    own: bool  # the reduction's accumulator
    sure: bool = True  # certainly this element, whenever the instance runs


def points(s: isl.Set) -> list[isl.Point]:
    found: list[isl.Point] = []
    s.foreach_point(found.append)
    return found


def coordinates(p: isl.Point, count: int) -> tuple[int, ...]:
    return tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(count))


def instances(scop: Scop) -> dict[Instance, isl.Point]:
    """All instances of a Scop without parameters."""
    return {(s.name, coordinates(p, len(s.iters))): p for s in scop.statements.values() for p in points(s.domain)}


def value(e: Expr, env: Mapping[str, int]) -> int:
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Var):
        return env[e.name]
    if isinstance(e, Cast):
        return value(e.a, env)
    if isinstance(e, Unary):
        a = value(e.a, env)
        return -a if e.op == "neg" else int(not a)
    if isinstance(e, Select):
        return value(e.a if value(e.cond, env) else e.b, env)
    if isinstance(e, Binary):
        a, b = value(e.a, env), value(e.b, env)
        return int(eval(f"a {e.op} b", {"a": a, "b": b}))
    raise Unknown


def elements(load: Load, shape: tuple[int, ...], env: Mapping[str, int]) -> list[tuple[int, ...]]:
    """What the access may touch: all of a dimension when the subscript is unknown."""
    out: list[tuple[int, ...]] = [()]
    for e, size in zip(load.index, shape, strict=True):
        try:
            values: list[int] = [value(e, env)]
        except Unknown:
            values = list(range(size))
        out = [(*o, v) for o in out for v in values]
    return out


def evaluated(e: Expr, env: Mapping[str, int]) -> Iterator[Load]:
    """Loads that evaluation may perform; a condition that is not known may go both ways."""
    if isinstance(e, Select):
        yield from evaluated(e.cond, env)
        known = truth(e.cond, env)
        if known is not False:
            yield from evaluated(e.a, env)
        if known is not True:
            yield from evaluated(e.b, env)
        return
    if isinstance(e, Binary) and e.op in ("and", "or"):
        yield from evaluated(e.a, env)
        if truth(e.a, env) is not (e.op == "or"):
            yield from evaluated(e.b, env)
        return
    for c in e.children():
        yield from evaluated(c, env)
    if isinstance(e, Load):
        yield e


def truth(e: Expr, env: Mapping[str, int]) -> bool | None:
    """Three-valued."""
    if isinstance(e, Unary) and e.op == "not":
        inner = truth(e.a, env)
        return None if inner is None else not inner
    if isinstance(e, Binary) and e.op in ("and", "or"):
        both = (truth(e.a, env), truth(e.b, env))
        if e.op == "and":
            return False if False in both else None if None in both else True
        return True if True in both else None if None in both else False
    try:
        return bool(value(e, env))
    except Unknown:
        return None


def touches(scop: Scop, s: Statement, at: tuple[int, ...]) -> set[Touch]:
    env = dict(zip(s.iters, at, strict=True))
    accumulator = accumulator_of(s)
    found: set[Touch] = set()

    certain = not s.dynamic and (s.predicate is None or truth(s.predicate, env) is True)

    def add(load: Load, write: bool, own: bool) -> None:
        shape = tuple(value(e, {}) for e in scop.arrays[load.array].shape)
        where = elements(load, shape, env)
        sure = certain and not any(isinstance(n, Load) for e in load.index for n in walk(e))
        found.update(Touch(load.array, el, write, own, sure or not write) for el in where)

    for bound in s.dynamic:
        for e in (bound.lo, bound.hi):
            for load in evaluated(e, env):
                add(load, False, False)
    if s.predicate is not None:
        for load in evaluated(s.predicate, env):
            add(load, False, False)
        if truth(s.predicate, env) is False:
            return found
    for load in evaluated(s.value, env):
        add(load, False, load is accumulator)
    for e in s.index:
        for load in evaluated(e, env):
            add(load, False, False)
    add(s.target, True, accumulator is not None)
    return found


def times(tree: Node, all_of: Mapping[Instance, isl.Point]) -> dict[Instance, list[Time]]:
    """Every time at which an instance runs (once in a good tree)."""
    out: dict[Instance, list[Time]] = {i: [] for i in all_of}

    def visit(node: Node, here: dict[Instance, Time]) -> None:
        if isinstance(node, Leaf):
            for i, t in here.items():
                out[i].append(t)
        elif isinstance(node, Band):
            for m in node.members:
                here = {i: (*t, int(m.schedule[i[0]].eval(all_of[i]).to_python())) for i, t in here.items()}
            visit(node.child, here)
        elif isinstance(node, Sequence):
            for k, f in enumerate(node.filters):
                visit(f.child, {i: (*t, k) for i, t in passing(f, here).items()})
        elif isinstance(node, Filter):
            visit(node.child, passing(node, here))
        else:
            visit(node.children()[0], here)

    def passing(f: Filter, here: dict[Instance, Time]) -> dict[Instance, Time]:
        return {i: t for i, t in here.items() if i[0] in f.domain and contains(f.domain[i[0]], all_of[i])}

    visit(tree, dict.fromkeys(all_of, ()))
    return out


def contains(s: isl.Set, p: isl.Point) -> bool:
    return not s.intersect(isl.Set.from_point(p)).is_empty()


def conflict_pairs(scop: Scop) -> tuple[set[tuple[Instance, Instance]], set[tuple[Instance, Instance]]]:
    """(pairs that fix an order, reduction pairs), source first in the Scop's own order."""
    all_of = instances(scop)
    when = {i: t[0] for i, t in times(scop.tree, all_of).items()}
    touched = {i: touches(scop, scop.statements[i[0]], i[1]) for i in all_of}
    operator = {name: s.reduction for name, s in scop.statements.items()}
    ordered, relaxed = set(), set()
    for x in all_of:
        for y in all_of:
            if not when[x] < when[y]:
                continue
            for a in touched[x]:
                for b in touched[y]:
                    if (a.write or b.write) and (a.array, a.element) == (b.array, b.element):
                        own = a.own and b.own and operator[x[0]] == operator[y[0]]
                        (relaxed if own else ordered).add((x, y))
    return ordered, relaxed - ordered


def flow_pairs(scop: Scop, kind: str) -> set[tuple[Instance, Instance]]:
    """Pairs x before y of one kind with no certain write of the element between the two accesses.

    An instance stores after all its reads, so for WAR the source's own store is in between.
    """
    all_of = instances(scop)
    when = {i: t[0] for i, t in times(scop.tree, all_of).items()}
    by_element: dict[tuple[str, tuple[int, ...]], list[tuple[Time, Instance, Touch]]] = {}
    for i in all_of:
        for t in touches(scop, scop.statements[i[0]], i[1]):
            by_element.setdefault((t.array, t.element), []).append((when[i], i, t))
    first, second = {"RAW": (True, False), "WAR": (False, True), "WAW": (True, True)}[kind]
    out = set()
    for uses in by_element.values():
        certain = [t for t, _, touch in uses if touch.write and touch.sure]
        for ta, x, a in uses:
            for tb, y, b in uses:
                between = any((ta <= t if kind == "WAR" else ta < t) and t < tb for t in certain)
                if ta < tb and a.write == first and b.write == second and not between:
                    out.add((x, y))
    return out


def pairs_of(union: isl.UnionMap) -> set[tuple[Instance, Instance]]:
    """The pairs of a relation without parameters."""
    out: set[tuple[Instance, Instance]] = set()

    def add(m: isl.Map) -> None:
        n = m.dim(isl.dim_type.in_)
        names = m.get_tuple_name(isl.dim_type.in_), m.get_tuple_name(isl.dim_type.out)
        for p in points(m.wrap().flatten()):
            c = coordinates(p, n + m.dim(isl.dim_type.out))
            out.add(((names[0], c[:n]), (names[1], c[n:])))

    union.foreach_map(add)
    return out


def carried(tree: Node, name: str, times_of: Mapping[Instance, Time], x: Instance, y: Instance) -> bool:
    """Whether x and y are different iterations of the loop `name` and equal in all loops above.

    A statement may run in several branches: both instances must be in the loop's own branch,
    which the sequence coordinates of their times tell.
    """
    place = _position(tree, name)
    assert place is not None
    position, branch = place
    a, b = times_of[x], times_of[y]
    inside = all(len(t) > position and all(t[k] == v for k, v in branch.items()) for t in (a, b))
    return inside and a[:position] == b[:position] and a[position] != b[position]


def _position(node: Node, name: str, depth: int = 0) -> tuple[int, dict[int, int]] | None:
    """The loop's coordinate, and the sequence coordinates (position: value) of its branch."""
    if isinstance(node, Band):
        for k, m in enumerate(node.members):
            if m.name == name:
                return depth + k, {}
        return _position(node.child, name, depth + len(node.members))
    if isinstance(node, Sequence):
        for k, f in enumerate(node.filters):
            found = _position(f.child, name, depth + 1)
            if found is not None:
                return found[0], {depth: k, **found[1]}
        return None
    kids = node.children()
    return _position(kids[0], name, depth) if kids else None


def is_legal(scop: Scop, tree: Node) -> bool:
    """Each instance once, at its own time; conflicts in order; marks hold."""
    all_of = instances(scop)
    runs = times(tree, all_of)
    if any(len(t) != 1 for t in runs.values()):
        return False
    when = {i: t[0] for i, t in runs.items()}
    own_times = [(i[0], t) for i, t in when.items()]
    if len(set(own_times)) != len(own_times):
        return False
    ordered, relaxed = conflict_pairs(scop)
    if any(not when[x] < when[y] for x, y in ordered):
        return False
    for member in (m for n in _walk(tree) if isinstance(n, Band) for m in n.members):
        if member.kind == "parallel" and any(carried(tree, member.name, when, x, y) for x, y in ordered | relaxed):
            return False
        lanes = ordered | {(x, y) for x, y in relaxed if x[0] != y[0]}  # of one statement lanes are added up
        if member.kind == "vector" and any(carried(tree, member.name, when, x, y) for x, y in lanes):
            return False
    return True


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for c in node.children():
        yield from _walk(c)
