"""Legality by enumeration: every instance, every element, every pair. No isl relations involved.

Works on Scops with constant sizes only; times come from evaluating the tree's functions point
by point, elements from evaluating the subscripts in Python.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import islpy as isl

from polyc.poly.expr import Binary, Const, Expr, Unary, Var, loads
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Member, Node, Promote, Sequence, concurrency

Point = tuple[int, ...]


@dataclass(frozen=True)
class Instance:
    stmt: str
    point: Point


def evaluate(e: Expr, env: dict[str, int]) -> int:
    match e:
        case Const(v):
            return int(v)
        case Var(name):
            return env[name]
        case Unary("neg", a):
            return -evaluate(a, env)
        case Binary(op, a, b):
            x, y = evaluate(a, env), evaluate(b, env)
            return {"+": x + y, "-": x - y, "*": x * y, "//": x // y if y else 0, "%": x % y if y else 0}[op]
    raise AssertionError(e)


def instances(stmt: Statement) -> list[Instance]:
    points: list[isl.Point] = []
    stmt.domain.foreach_point(points.append)
    n = len(stmt.iters)
    read = [tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(n)) for p in points]
    return [Instance(stmt.name, p) for p in sorted(read)]


def value(pa: isl.PwAff, x: Instance) -> int:
    point = isl.Point.zero(pa.get_domain_space())
    for k, v in enumerate(x.point):
        point = point.set_coordinate_val(isl.dim_type.set, k, isl.Val(v))
    return int(pa.eval(point).to_python())


def times(tree: Node, everything: list[Instance]) -> tuple[dict[Instance, list[int]], list[tuple[Member, dict]]]:
    """Instance -> time vector; and for each marked loop the prefix times (own value last)."""
    out: dict[Instance, list[int]] = {x: [] for x in everything}
    marked: list[tuple[Member, dict[Instance, Point]]] = []

    def visit(node: Node, alive: list[Instance]) -> None:
        if isinstance(node, Band):
            for m in node.members:
                for x in alive:
                    out[x].append(value(m.schedule[x.stmt], x))
                if concurrency(m.kind):
                    marked.append((m, {x: tuple(out[x]) for x in alive}))
            visit(node.child, alive)
        elif isinstance(node, Sequence):
            for k, f in enumerate(node.filters):
                part = passing(f, alive)
                for x in part:
                    out[x].append(k)
                visit(f.child, part)
        elif isinstance(node, Filter):
            visit(node.child, passing(node, alive))
        elif isinstance(node, Promote):
            visit(node.child, alive)

    visit(tree, everything)
    return out, marked


def passing(f: Filter, alive: list[Instance]) -> list[Instance]:
    """The instances that a filter lets through."""
    points: dict[str, set[Point]] = {}
    for s, d in f.domain.items():
        found: list[isl.Point] = []
        d.foreach_point(found.append)
        n = d.dim(isl.dim_type.set)
        points[s] = {tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(n)) for p in found}
    return [x for x in alive if x.point in points.get(x.stmt, ())]


def elements(stmt: Statement, x: Instance) -> tuple[set, tuple]:
    """Elements read, and the one written."""
    env = dict(zip(stmt.iters, x.point, strict=True))
    read = {(a.array, tuple(evaluate(i, env) for i in a.index)) for a in loads(stmt.value)}
    return read, (stmt.array, tuple(evaluate(i, env) for i in stmt.index))


def conflicts(scop: Scop) -> list[tuple[Instance, Instance, bool]]:
    """(first, second, only updates of one element by one operator) in program order."""
    everything = [x for s in scop.statements.values() for x in instances(s)]
    before, _ = times(scop.tree, everything)
    touched = {x: elements(scop.statements[x.stmt], x) for x in everything}
    found = []
    for a, b in itertools.combinations(everything, 2):
        if before[a] > before[b]:
            a, b = b, a
        (ra, wa), (rb, wb) = touched[a], touched[b]
        if not (wa == wb or wa in rb or wb in ra):
            continue
        one, two = scop.statements[a.stmt], scop.statements[b.stmt]
        own = False
        if one.reduction is not None and one.reduction == two.reduction and wa == wb:
            others_a, others_b = updates(one, a), updates(two, b)
            own = wa not in others_b and wb not in others_a
        found.append((a, b, own))
    return found


def updates(stmt: Statement, x: Instance) -> set:
    """Elements read by a reduction besides its accumulator."""
    env = dict(zip(stmt.iters, x.point, strict=True))
    assert isinstance(stmt.value, Binary)
    return {(a.array, tuple(evaluate(i, env) for i in a.index)) for a in loads(stmt.value.b)}


def legal(scop: Scop, tree: Node, pairs: list[tuple[Instance, Instance, bool]]) -> bool:
    """Whether the tree keeps all pairs in order and its marked loops carry none."""
    everything = [x for s in scop.statements.values() for x in instances(s)]
    after, marked = times(tree, everything)
    for a, b, own in pairs:
        ta, tb = after[a], after[b]
        n = min(len(ta), len(tb))
        if not own and not ta[:n] < tb[:n]:
            return False
        for m, prefix in marked:
            if a in prefix and b in prefix and not (own and a.stmt == b.stmt and m.kind == "vector"):
                pa, pb = prefix[a], prefix[b]
                if pa[:-1] == pb[:-1] and pa[-1] != pb[-1]:
                    return False
    return True
