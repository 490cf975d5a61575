"""Strategy: fuse neighbouring nests that hand elements to each other without losing parallelism.

Two loops are joined when both carry nothing, run over the same values, and every conflict
between the nests stays within one iteration; so the joined loop carries nothing either, and
intermediate arrays can shrink to what one iteration needs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import islpy as isl

from polyc.poly.expr import Const, Expr, Var, loads, substitute, variables
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Member, loops_around, time_map
from polyc.scheduler.cost.cache_blocks import HANDED_ON, MOST_STATEMENTS
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.questions.coincidence import Pair, narrowed
from polyc.scheduler.strategies.planner import Plan, first_loops, is_flat, parts

INNER_DEPTH = 1  # loops that may stay separate below joined ones, whatever they run over


def join(plan: Plan) -> None:
    """Join greedily, sequence by sequence, outermost first, until nothing changes."""
    _each_pair(plan, try_join)


def join_lines(plan: Plan) -> None:
    """Join whole nests that hand nothing to each other and touch the same cache lines; before there are vector loops,
    as what is stored at `A[i, 0]` and `A[i, 1]` is one run of vectors."""
    _each_pair(plan, _try_join_lines)


def _each_pair(plan: Plan, what: Callable[[Plan, str, str], None]) -> None:
    """Try it with all neighbours, until nothing changes."""
    done: set[tuple[str, str]] = set()
    while True:
        pair = _candidate(plan, done)
        if pair is None:
            return
        done.add(pair)
        what(plan, *pair)


def _candidate(plan: Plan, done: set[tuple[str, str]]) -> tuple[str, str] | None:
    """The next neighbours (their first loops) not looked at yet."""
    for _, seq in plan.sequences():
        heads = [first_loops(f.child) for f in parts(seq)]
        for a, b in zip(heads, heads[1:]):
            # A part that begins with statements outside loops has no first loop of its own.
            if len(a) == len(b) == 1 and (a[0], b[0]) not in done:
                # Two nests with trees of their own stay apart; one may take in what feeds it.
                if not all(plan.claimed & set(plan.member(n).schedule) for n in (a[0], b[0])):
                    return a[0], b[0]
    return None


def try_join(plan: Plan, a: str, b: str) -> None:
    """Join two neighbouring nests, named by their first loops, as deep as that keeps them parallel."""
    (first, body_a), (second, body_b) = plan.nest(a), plan.nest(b)
    shared = narrowed(between(plan, first[0], second[0]), plan.around(a))
    if not shared or len(first[0].schedule) + len(second[0].schedule) > MOST_STATEMENTS:
        return
    order = [m.name for m in first]
    first = _in_order_of(plan, first, second, shared)
    depth = common_depth(plan, first, second, shared)
    flat = is_flat(body_a) and is_flat(body_b)
    whole = flat and depth == len(first) == len(second)
    if not whole:
        # Vector loops stay innermost: they are joined with everything else or not at all.
        while depth and (first[depth - 1].kind == "vector" or second[depth - 1].kind == "vector"):
            depth -= 1
        deep = max(len(first), len(second)) - depth > INNER_DEPTH or (not flat and depth < min(len(first), len(second)))
        if deep and not (_stays_in_cache(plan, first, depth) and _stays_in_cache(plan, second, depth)):
            depth = 0
    if not depth:
        return
    steps: list[tuple[str, dict[str, Any]]] = []
    if [m.name for m in first] != order:
        steps.append(("permute", {"loops": [m.name for m in first]}))
    steps += [("fuse", {"a": x.name, "b": y.name}) for x, y in zip(first[:depth], second[:depth])]
    names = ", ".join(f"{x.name}+{y.name}" for x, y in zip(first[:depth], second[:depth]))
    plan.attempt(f"nests {a}, {b}", f"fuse {names}", lambda s: s.batch(*steps), depth=depth)


def _try_join_lines(plan: Plan, a: str, b: str) -> None:
    """Join two neighbouring nests that touch the same cache lines, if all their loops are alike."""
    (first, body_a), (second, body_b) = plan.nest(a), plan.nest(b)
    if len(first) != len(second) or not (is_flat(body_a) and is_flat(body_b)):
        return
    if len(first[0].schedule) + len(second[0].schedule) > MOST_STATEMENTS or not _same_lines(plan, first, second):
        return
    shared = narrowed(between(plan, first[0], second[0]), plan.around(a))
    if shared or common_depth(plan, first, second, shared) < len(first):
        return
    steps = [("fuse", {"a": x.name, "b": y.name}) for x, y in zip(first, second, strict=True)]
    names = ", ".join(f"{x.name}+{y.name}" for x, y in zip(first, second, strict=True))
    plan.attempt(f"nests {a}, {b}", f"fuse {names}, which touch the same lines", lambda s: s.batch(*steps))


def _same_lines(plan: Plan, first: list[Member], second: list[Member]) -> bool:
    """Whether two nests that hand nothing to each other write different elements of the same cache lines, or read the
    same elements, and compute each of theirs at once."""
    touched = [_touched(plan.scop, [*_around(plan, nest), *nest]) for nest in (first, second)]
    if None in touched:
        return False
    (writes, reads), (others, again) = (t for t in touched if t is not None)
    lines = {(array, index[:-1]) for array, index in writes if index and isinstance(index[-1], Const)}
    return bool(lines & {(array, index[:-1]) for array, index in others if index}) or bool(reads & again)


Element = tuple[str, tuple[Expr, ...]]


def _touched(scop: Scop, nest: list[Member]) -> tuple[set[Element], set[Element]] | None:
    """The elements that the statements in some loops write and read, with the loops' numbers for iterators; None where
    a statement adds up, or has other iterators."""
    writes: set[Element] = set()
    reads: set[Element] = set()
    for name in nest[-1].schedule:
        s = scop.statements[name]
        own = [iterator(s, m.schedule[name]) for m in nest]
        if s.reduction is not None or s.predicate is not None or s.dynamic or None in own or set(own) != set(s.iters):
            return None
        point: dict[str, Expr] = {i: Var(f"{k}") for k, i in enumerate(own) if i is not None}
        writes.add((s.array, tuple(substitute(e, point) for e in s.index)))
        for load in loads(s.value):
            if load.index:
                reads.add((load.array, tuple(substitute(e, point) for e in load.index)))
    return writes, reads


def _stays_in_cache(plan: Plan, nest: list[Member], depth: int) -> bool:
    """Whether one iteration of the outer `depth` loops writes few enough elements that what it
    leaves for the next nest is still in the L2 cache."""
    written = _written(plan, nest, depth)
    return written is not None and written <= plan.near_bytes


def _written(plan: Plan, nest: list[Member], depth: int) -> int | None:
    """Bytes that one iteration of the outer `depth` loops writes, of the statement that writes most."""
    most = 0
    outside = {x.name for x in (*_around(plan, nest), *nest[:depth])}
    for stmt in nest[0].schedule:
        inside = [m for m in loops_around(plan.tree, stmt) if m.name not in outside]
        sizes = [plan.extent(m, [stmt]) for m in inside if _moves_target(plan.scop.statements[stmt], m)]
        if None in sizes:
            return None
        most = max(most, prod(n or 1 for n in sizes) * plan.scop.statements[stmt].value.dtype.bytes)
    return most


def _around(plan: Plan, nest: list[Member]) -> list[Member]:
    """The loops around a nest, whose own may be given in another order than the tree's."""
    own = {m.name for m in nest}
    return [m for m in plan.around(nest[0].name) if m.name not in own]


def _moves_target(stmt: Statement, loop: Member) -> bool:
    """Whether the loop goes over elements that the statement writes (a reduction loop does not)."""
    names = set().union(*map(variables, stmt.index))
    return any(loop.schedule[stmt.name].involves_dims(isl.dim_type.in_, stmt.iters.index(n), 1) for n in names
               if n in stmt.iters)  # fmt: skip


def between(plan: Plan, a: Member, b: Member) -> list[Pair]:
    """Conflicts of one nest with the other, by their first loops."""
    return [p for p in plan.pairs() if p.source in a.schedule and p.sink in b.schedule]


def common_depth(plan: Plan, first: list[Member], second: list[Member], shared: list[Pair]) -> int:
    """How many of the outer loops can be joined one to one."""
    carried = plan.carried()
    depth = 0
    for x, y in zip(first, second):
        if not (carried[x.name].parallel and carried[y.name].parallel and (x.kind, x.factor) == (y.kind, y.factor)):
            break
        both = Member(x.name, {**x.schedule, **y.schedule})
        if not all(p.tied(both) for p in shared):
            break
        if not _same_values(plan, [*_around(plan, first), *first[: depth + 1]],
                            [*_around(plan, second), *second[: depth + 1]]):  # fmt: skip
            break
        depth += 1
    return depth


def _in_order_of(plan: Plan, first: list[Member], second: list[Member], shared: list[Pair]) -> list[Member]:
    """The loops of a nest in another order, which has loops of the second one outermost, in its order, if that makes
    more of them alike. Vector loops and what stands inside them stay."""
    if plan.claimed & set(first[0].schedule):
        return first
    carried = plan.carried()
    free = [m for m in first if m.kind == "serial" and carried[m.name].parallel]
    front: list[Member] = []
    for y in second:
        same = (x for x in free if x not in front and alike(plan, x, y, shared))
        found = next(same, None)
        if found is None:
            break
        front.append(found)
    swapped = [*front, *(m for m in first if m not in front)]
    depth = common_depth(plan, swapped, second, shared)
    better = depth > common_depth(plan, first, second, shared)
    handed = _written(plan, swapped, depth) if better else None
    return swapped if handed is not None and handed >= HANDED_ON else first


def alike(plan: Plan, x: Member, y: Member, shared: list[Pair]) -> bool:
    """Whether the two loops, alone, take the same values and keep what the nests share in one iteration."""
    both = Member(x.name, {**x.schedule, **y.schedule})
    same = all(p.tied(both) for p in shared)
    return same and _same_values(plan, [x], [y])


def _same_values(plan: Plan, first: list[Member], second: list[Member]) -> bool:
    """Whether the innermost of the loops take the same values in both nests."""
    return bool(values(plan, first).is_equal(values(plan, second)))


def values(plan: Plan, loops: list[Member]) -> isl.Set:
    """`{ [x, ...] }`: the values that loops around each other take together."""
    out: isl.Set | None = None
    for stmt in loops[-1].schedule:
        domain = plan.scop.statements[stmt].domain.intersect_params(plan.scop.context)
        image = time_map(domain, [m.schedule[stmt] for m in loops]).range()
        out = image if out is None else out.union(image)
    assert out is not None
    return out
