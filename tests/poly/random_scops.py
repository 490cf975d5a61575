"""Random small Scops and random trees for them, legal or not."""

from __future__ import annotations

import random
from dataclasses import replace

import islpy as isl
import small_scops as scops

from polyc.poly.dtypes import bool_, f32, i64
from polyc.poly.expr import Binary, Cast, Expr, Load, Select, Unary, Var, const_int
from polyc.poly.scop import Array, DynamicBound, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, LoopKind, Member, Node, Sequence, loop_dim

ARRAYS = {"A": 1, "B": 2, "s": 0}


def subscript(r: random.Random, iters: list[str], indirect: bool = True) -> Expr:
    pick = r.random()
    if indirect and pick < 0.08:
        return Cast(Load("idx", (subscript(r, iters, False),), i64), i64)
    if not iters or pick < 0.15:
        return const_int(r.randint(0, 2))
    e: Expr = Var(r.choice(iters))
    if pick < 0.45:
        return Binary(r.choice("+-"), e, const_int(r.randint(1, 2)), i64)
    if pick < 0.6 and len(iters) > 1:
        return Binary(r.choice("+-"), e, Var(r.choice(iters)), i64)
    if pick < 0.7:
        return Binary(r.choice(["//", "%"]), e, const_int(2), i64)
    return e


def load(r: random.Random, iters: list[str]) -> Load:
    name = r.choice([*ARRAYS, "A", "B"])
    return Load(name, tuple(subscript(r, iters) for _ in range(ARRAYS[name])), f32)


def condition(r: random.Random, iters: list[str], depth: int = 1) -> Expr:
    pick = r.random()
    if depth and pick < 0.35:
        return Binary(r.choice(["and", "or"]), condition(r, iters, 0), condition(r, iters, 0), bool_)
    if depth and pick < 0.45:
        return Unary("not", condition(r, iters, 0), bool_)
    if pick < 0.7:
        return Binary(r.choice(["<", ">=", "==", "!="]), subscript(r, iters, False), const_int(r.randint(0, 2)), bool_)
    return Binary("<", load(r, iters), scops.zero(), bool_)


def expression(r: random.Random, iters: list[str]) -> Expr:
    terms: list[Expr] = []
    for _ in range(r.randint(1, 2)):
        t: Expr = load(r, iters)
        if r.random() < 0.25:
            t = Select(condition(r, iters), t, load(r, iters), f32)
        terms.append(t)
    return scops.add(*terms)


def statement(r: random.Random, name: str, depth: int) -> Statement:
    iters = [f"i{name[1:]}_{d}" for d in range(depth)]
    bounds = []
    for d, i in enumerate(iters):
        low = iters[r.randrange(d)] if d and r.random() < 0.3 else "0"
        bounds.append(f"{low} <= {i} <= {r.randint(1, 3)}")
        if r.random() < 0.15:
            bounds.append(f"{i} mod 2 = {r.randint(0, 1)}")
    dom = isl.Set(f"{{ {name}[{', '.join(iters)}] : {' and '.join(bounds) or 'true'} }}")
    target = load(r, iters)
    value = expression(r, iters)
    reduction = None
    if r.random() < 0.4:
        while target.array in {x.array for x in _loads(value)}:
            value = expression(r, iters)
        value, reduction = Binary("+", target, value, f32), "+"
    predicate = condition(r, iters) if r.random() < 0.2 else None
    dynamic: tuple[DynamicBound, ...] = ()
    if iters and r.random() < 0.12:
        d = r.randrange(depth)
        low, high = (Cast(load(r, iters[:d]), i64) for _ in range(2))
        dynamic = (DynamicBound(iters[d], low, high),)
    return Statement(name, tuple(iters), dom, target.array, target.index, value, predicate, reduction, dynamic)


def _loads(e: Expr) -> list[Load]:
    from polyc.poly.expr import loads

    return list(loads(e))


def random_scop(r: random.Random) -> Scop:
    depth = r.randint(1, 2)
    made = [statement(r, f"S{k}", r.choice([depth, depth, r.randint(0, 2)])) for k in range(r.randint(1, 3))]
    arrays = {n: Array(n, f32, (const_int(4),) * rank, "inout") for n, rank in ARRAYS.items()}
    arrays["idx"] = Array("idx", i64, (const_int(4),), "in")
    ctx = isl.Set("{ : }").params()
    out = Scop("random", (), ctx, arrays, {s.name: s for s in made}, Leaf(), tuple(arrays), ())
    return out.with_tree(random_tree(r, out, marks=False, wild=False))


def random_tree(r: random.Random, scop: Scop, marks: bool = True, wild: bool = True) -> Node:
    """A tree over all instances (rarely a broken one when `wild`)."""
    counter = [0]
    names = list(scop.statements)
    if wild and r.random() < 0.5:
        r.shuffle(names)
    return _nest(r, scop, {n: scop.statements[n].domain for n in names}, {n: 0 for n in names}, counter, marks, wild)


def _nest(r: random.Random, scop: Scop, active: dict[str, isl.Set], done: dict[str, int], counter: list[int],
          marks: bool, wild: bool) -> Node:  # fmt: skip
    """Loops over iterators from `done[s]` on, fused where depths allow it and chance wants it."""
    left = {s: len(scop.statements[s].iters) - done[s] for s in active}
    if len(active) > 1 and (min(left.values()) == 0 or r.random() < 0.5):
        names = list(active)
        cut = r.randint(1, len(names) - 1)
        parts = [names[:cut], names[cut:]]
        filters = []
        for p in parts:
            inner = {s: active[s] for s in p}
            filters.append(Filter(inner, _nest(r, scop, inner, {s: done[s] for s in p}, counter, marks, wild)))
        return Sequence(tuple(filters))
    if min(left.values()) == 0:
        return Leaf()
    if len(active) == 1 and wild and r.random() < 0.15:
        return _index_split(r, scop, active, done, counter, marks, wild)
    take = 1 if len(active) > 1 else min(left.values())
    return _loops(r, scop, active, done, take, counter, marks, wild)


def _index_split(r: random.Random, scop: Scop, active: dict[str, isl.Set], done: dict[str, int],
                 counter: list[int], marks: bool, wild: bool) -> Node:  # fmt: skip
    ((name, domain),) = active.items()
    at = r.randrange(len(scop.statements[name].iters))
    low = domain.upper_bound_val(isl.dim_type.set, at, isl.Val(r.randint(0, 1)))
    parts = [low, domain.subtract(low)]
    if r.random() < 0.5:
        parts.reverse()
    if r.random() < 0.1:
        parts[0] = parts[0].union(domain.lower_bound_val(isl.dim_type.set, at, isl.Val(1)))
    return Sequence(
        tuple(Filter({name: p}, _loops(r, scop, {name: p}, done, len(scop.statements[name].iters) - done[name],
                                       counter, marks, wild)) for p in parts)
    )  # fmt: skip


def _loops(r: random.Random, scop: Scop, active: dict[str, isl.Set], done: dict[str, int], take: int,
           counter: list[int], marks: bool, wild: bool) -> Node:  # fmt: skip
    rows: list[dict[str, isl.PwAff]] = []
    for d in range(take):
        rows.append({s: loop_dim(scop.statements[s].domain, done[s] + d) for s in active})
    if wild:
        if r.random() < 0.4:
            r.shuffle(rows)
        for row in rows:
            change = r.random()
            for s in row:
                if change < 0.15:
                    row[s] = row[s].neg()
                elif change < 0.3 and r.random() < 0.5:
                    one = row[s].mul(row[s].scale_val(isl.Val(0)))
                    row[s] = row[s].add(one.add_constant_val(isl.Val(r.randint(-1, 2))))
        if len(rows) > 1 and r.random() < 0.3:
            rows[1] = {s: rows[1][s].add(rows[0][s]) for s in active}
        if r.random() < 0.3:
            k = r.randrange(len(rows))
            outer = {s: pa.scale_down_val(isl.Val(2)).floor() for s, pa in rows[k].items()}
            rows.insert(r.randrange(k + 1), outer)
        if len(rows) > 1 and r.random() < 0.05:
            rows.pop()
    members = []
    for row in rows:
        kind: LoopKind = r.choice(["serial", "serial", "parallel", "vector"]) if marks else "serial"
        members.append(Member(f"l{counter[0]}", row, kind))
        counter[0] += 1
    below = {s: done[s] + take for s in active}
    return Band(tuple(members), _nest(r, scop, active, below, counter, marks, wild))


def without_marks(node: Node) -> Node:
    """The same tree with serial loops."""
    kids = tuple(without_marks(c) for c in node.children())
    if isinstance(node, Band):
        return Band(tuple(replace(m, kind="serial") for m in node.members), kids[0])
    return node.with_children(kids) if kids else node
