"""`while` loops that count up to a number, as loops over a range.

    p = ptr[i]                                     for p in range(ptr[i], ptr[i + 1]): S(p)
    while p < ptr[i + 1]: S(p); p += 1     ->      p = max(ptr[i], ptr[i + 1])

The number is the same in all of the loop, and can be read before it whatever the conditions say.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import islpy as isl

from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Expr, Load, Select, Unary, Var, const_int, loads, rewrite
from polyc.poly.forms.affine import is_affine, set_space, to_set
from polyc.poly.reduction import with_reduction
from polyc.poly.rewriting.choices import without
from polyc.poly.rewriting.held_elements import like, with_parts
from polyc.poly.rewriting.loop_bounds import bound_of, conjuncts, read_before, widened
from polyc.poly.rewriting.loop_ends import alone, loop_of, starts_before
from polyc.poly.scop import DYNAMIC_EXTENT, ENDLESS, DynamicBound, Scop, Statement
from polyc.poly.tree import Filter, Node, Sequence, loops_around, walk


def with_counted_loops(scop: Scop, marked: Collection[str]) -> Scop:
    """The program with such loops; the Scop itself where there are none."""
    for name, s in scop.statements.items():
        endless = any(d.hi == const_int(ENDLESS) for d in s.dynamic)
        if endless and s.value.dtype == bool_ and s.predicate == Unary("not", s.target, bool_):
            new = _counted(scop, name, marked)
            if new is not None:
                return with_counted_loops(new, marked)
    return scop


def _counted(scop: Scop, setter: str, marked: Collection[str]) -> Scop | None:
    """The program with a range for the loop whose flag a statement sets; None where the loop does something else."""
    s = scop.statements[setter]
    found = loop_of(scop, setter, marked)
    starts = [t for n, t in scop.statements.items() if t.array == s.array and n != setter]
    if found is None or len(starts) != 1 or not starts_before(scop, starts[0], s):
        return None
    i, inside = found
    body = next(n for n in walk(scop.tree) if isinstance(n, Sequence) and alone(n.filters[0], setter))
    last = next(iter(body.filters[-1].domain))
    step = scop.statements[last]
    counter = step.target
    plus = Binary("+", counter, const_int(1), i64)
    if not alone(body.filters[-1], last) or step.value != plus or step.predicate != s.predicate or last not in inside:
        return None
    end = _end(scop, s, i, inside, counter)
    others = {n: scop.statements[n] for n in inside - {last}}
    if end is None or not others or not _only_in(scop, s.array, inside | {setter, starts[0].name}):
        return None
    own = _own_start(scop, starts[0], s, counter, inside)
    begin = counter if own is None else own.value
    if next(loads(begin), None) is None and not is_affine(begin, set_space(setter, s.iters, scop.params)):
        return None
    changed = {n: _over_range(scop, t, s, i, counter, (begin, end)) for n, t in others.items()}
    if any(t is None for t in changed.values()):
        return None
    return _with_range(scop, starts[0], own, s, step, {n: t for n, t in changed.items() if t is not None}, end)


def _own_start(
    scop: Scop, start: Statement, setter: Statement, counter: Load, inside: Collection[str]
) -> Statement | None:
    """The one statement before the loop that gives a counter its value, which nothing but the loop reads; None for
    other counters."""
    found = [t for n, t in scop.statements.items() if t.array == counter.array and n not in inside]
    if len(found) != 1 or scop.arrays[counter.array].kind != "local":
        return None
    (own,) = found
    plain = own.predicate is None and own.reduction is None and own.index == counter.index and own.iters == start.iters
    around = [[m.name for m in loops_around(scop.tree, t.name)] for t in (own, start)]
    if not plain or around[0] != around[1] or not own.domain.is_equal(start.domain.set_tuple_name(own.name)):
        return None
    beside = next((set(n.filters[k].domain) for n in walk(scop.tree) if isinstance(n, Sequence)
                   for k, p in enumerate(n.filters) if {own.name, setter.name} <= p.domain.keys()),
                  set(scop.statements))  # fmt: skip
    written = {scop.statements[n].array for n in beside}
    if not _only_in(scop, counter.array, {*inside, own.name, setter.name}):
        return None
    known = set(start.iters) | set(scop.params)
    return own if read_before(scop, setter, setter.iters[len(start.iters)], own.value, known, written) else None


def _only_in(scop: Scop, array: str, statements: Collection[str]) -> bool:
    return all(n in statements or array not in _arrays(t) for n, t in scop.statements.items())


def _arrays(s: Statement) -> set[str]:
    every = (s.target, s.value, *(() if s.predicate is None else (s.predicate,)))
    return {x.array for e in (*every, *(b for d in s.dynamic for b in (d.lo, d.hi))) for x in loads(e)}


def _end(scop: Scop, s: Statement, i: str, inside: Collection[str], counter: Load) -> Expr | None:
    """The number that the counter is compared with."""
    here = Var(i, i64)
    value = rewrite(s.value, lambda e: here if isinstance(e, Load) and _same(e, counter) else e)
    found = bound_of(widened(value, s.domain), i)
    if found is None or len(found[0]) != 1:
        return None
    known = set(s.iters[: s.iters.index(i)]) | set(scop.params)
    written = {scop.statements[n].array for n in inside} | {s.array}
    end, inner = found[0][0], read_before(scop, s, i, counter, known, {s.array})
    if next(loads(end), None) is None and not is_affine(end, set_space(s.name, s.iters, scop.params)):
        return None
    return end if inner and read_before(scop, s, i, end, known, written) else None


def _same(a: Load, b: Load) -> bool:
    return (a.array, a.index) == (b.array, b.index)


def _over_range(
    scop: Scop, t: Statement, setter: Statement, i: str, counter: Load, bounds: tuple[Expr, Expr]
) -> Statement | None:
    """A statement with the loop's iterator for the counter."""
    if t.array == counter.array or t.predicate is None or i not in t.iters:
        return None
    here, not_left = Var(i, i64), Unary("not", setter.target, bool_)
    known = list(conjuncts(t.predicate))
    kept = [e for e in known if e != not_left]
    if len(kept) == len(known):
        return None

    def new(e: Expr) -> Expr:
        if isinstance(e, Select) and e.cond == not_left:  # bounds of loops inside
            return e.a
        return here if isinstance(e, Load) and _same(e, counter) else e

    by_data = any(True for e in bounds for _ in loads(e))
    dynamic = tuple(
        DynamicBound(i, *bounds) if d.iter == i else replace(d, lo=rewrite(d.lo, new), hi=rewrite(d.hi, new))
        for d in t.dynamic
        if by_data or d.iter != i
    )
    domain = _opened(t.domain, t.iters.index(i))
    for op, e in zip((">=", "<"), bounds, strict=True):
        if next(loads(e), None) is None:
            domain = domain.intersect(to_set(Binary(op, here, e, bool_), domain.get_space()))
    predicate = None
    for e in kept:
        own = rewrite(e, new)
        predicate = own if predicate is None else Binary("and", predicate, own, bool_)
    index, value = tuple(rewrite(e, new) for e in t.index), rewrite(t.value, new)
    done = replace(t, domain=domain.coalesce(), index=index, value=value, predicate=predicate, dynamic=dynamic)
    body = replace(done, dynamic=tuple(d for d in done.dynamic if d.iter != i))
    if _arrays(body) & {counter.array, setter.array}:
        return None
    return with_reduction(done, scop.reassociate)


def _opened(points: isl.Set, k: int) -> isl.Set:
    """The iterations with any number for one of the iterators."""
    found = isl.Set.empty(points.get_space())
    for part in points.get_basic_sets():
        found = found.union(isl.Set.from_basic_set(part.drop_constraints_involving_dims(isl.dim_type.set, k, 1)))
    found = found.lower_bound_val(isl.dim_type.set, k, isl.Val(-DYNAMIC_EXTENT))
    return found.upper_bound_val(isl.dim_type.set, k, isl.Val(DYNAMIC_EXTENT - 1))


def _with_range(
    scop: Scop,
    start: Statement,
    own: Statement | None,
    setter: Statement,
    step: Statement,
    changed: dict[str, Statement],
    end: Expr,
) -> Scop | None:
    """The program with changed statements in the loop, without its flag, and with the counter's value after it."""
    place = next(
        ((n, k) for n in walk(scop.tree) if isinstance(n, Sequence) and any(alone(p, start.name) for p in n.filters)
         for k, p in enumerate(n.filters) if setter.name in p.domain),
        None,
    )  # fmt: skip
    if place is None:
        return None
    tree, gone = scop.tree, {setter.name, start.name, step.name}
    statements = {n: changed.get(n, t) for n, t in scop.statements.items()}
    if own is None:
        after = like(scop, start, f"{step.name}_end", step.target, Binary("max", step.target, end, i64))
        tree = with_parts(tree, place[0], place[1], start.name, (), (after.name,))
        statements[after.name] = after
    else:
        gone.add(own.name)
    for name in gone:
        tree = without(tree, name)
    unused = {setter.array} | ({step.array} if own is not None else set())
    return replace(
        scop,
        arrays={n: a for n, a in scop.arrays.items() if n not in unused},
        statements={n: t for n, t in statements.items() if n not in gone},
        tree=_moved(tree, changed),
    )


def _moved(node: Node, changed: dict[str, Statement]) -> Node:
    """The tree over the changed statements' instances."""
    kids = tuple(_moved(c, changed) for c in node.children())
    if isinstance(node, Filter):
        return Filter({n: changed[n].domain if n in changed else d for n, d in node.domain.items()}, kids[0])
    return node.with_children(kids) if kids else node
