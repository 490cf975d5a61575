"""Largest and smallest values: who gets the derivative is found at once, not step by step.

The chain `m = max(m, e)` gives the adjoint of `m` to the first `e` that equals the result, or to the value that `m`
starts with where no `e` exceeds that. Followed step by step this needs every value that `m` had, and an order. Where
the chain is all that happens to `m` between its start and its last update, it is as right to look for the smallest
position at which `e` equals the result; positions are found by a reduction, and all that follows is parallel.
"""

from __future__ import annotations

from collections.abc import Callable

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.adjoint.values import Order
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Expr, Var, const_int, loads, substitutable, substitute
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.forms.ranges import bounds
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import DYNAMIC_EXTENT, Scop, Statement
from polyc.poly.tree import loop_dim, loops_around

NOWHERE = const_int(2**62)
"""The position where no element exceeds the start."""

ValueOf = Callable[[Statement, Expr], Expr | None]
"""An expression of a statement with the values that it had, where they need no tape; else None."""


@dataclass(frozen=True, eq=False)
class Chain:
    """`update` is what is compared, `position` where the instance stands in its chain, `start` the value before the
    first update, `opening` the statement that wrote it, `first` the first instance of each chain."""

    update: Expr
    position: Expr
    start: Expr
    opening: str
    first: isl.Set


def chain_of(scop: Scop, order: Order, s: Statement, value_of: ValueOf) -> Chain | None:
    """The chains of a statement that keeps the largest or smallest of values; None where it is none of that form."""
    if s.reduction not in ("max", "min") or not isinstance(s.value, Binary) or s.predicate is not None:
        return None
    update = s.value.b
    if any(load.array == s.array for load in loads(update)) or any(True for e in s.index for _ in loads(e)):
        return None
    domain = s.domain.intersect_params(scop.context)
    written = order.touched(s, s.target, domain)
    before = _undisturbed(scop, s, written)
    if before is None:
        return None
    opening, relation = before
    position, start = _position(scop, s, written), _start(scop, s, domain, opening, relation, value_of)
    if position is None or start is None:
        return None
    again = in_order(scop, {(s.name, s.name): written.apply_range(written.reverse())})
    later = again[s.name, s.name].range() if again else isl.Set.empty(domain.get_space())
    return Chain(update, position, start, opening.name, domain.subtract(later).coalesce())


def _undisturbed(scop: Scop, s: Statement, written: isl.Map) -> tuple[Statement, isl.Map] | None:
    """The one statement that writes the elements before their chains, as `{ s[x] -> it[y] }`, if no other statement
    touches an element between two updates and none writes it afterwards."""
    others = [a for a in accesses(scop) if a.array == s.array and a.stmt != s.name]
    openings: dict[str, isl.Map] = {}
    for a in others:
        touching = written.apply_range(a.map.reverse())
        after = in_order(scop, {(s.name, a.stmt): touching}).get((s.name, a.stmt))
        earlier = in_order(scop, {(a.stmt, s.name): touching.reverse()}).get((a.stmt, s.name))
        if after is not None and (a.write or (earlier is not None and not after.apply_range(earlier).is_empty())):
            return None
        if a.write and earlier is not None:
            openings[a.stmt] = earlier.reverse()
    if len(openings) != 1:
        return None
    ((name, relation),) = openings.items()
    return scop.statements[name], relation


def _start(
    scop: Scop, s: Statement, domain: isl.Set, opening: Statement, relation: isl.Map, value_of: ValueOf
) -> Expr | None:
    """The value that a chain starts with, in terms of the iterators of `s`."""
    plain = opening.predicate is None and not opening.dynamic and opening.reduction is None
    reads_itself = any(load.array == s.array for load in loads(opening.value))
    if not plain or reads_itself or not substitutable(opening.value):
        return None
    if not relation.is_single_valued() or not domain.is_subset(relation.domain()):
        return None
    value = value_of(opening, opening.value)
    if value is None:
        return None
    made = isl.PwMultiAff.from_map(relation.intersect_domain(domain))
    values = {i: function_expr(made.get_at(k), s.iters, domain) for k, i in enumerate(opening.iters)}
    return substitute(value, values)


def _position(scop: Scop, s: Statement, written: isl.Map) -> Expr | None:
    """A number that grows along each chain in the order of the program; None where the loops have another form."""
    domain = s.domain.intersect_params(scop.context)
    signs = _directions(scop, s)
    if signs is None:
        return None
    chosen = list(range(len(s.iters)))
    for k in range(len(s.iters)):
        fewer = [c for c in chosen if c != k]
        told = written
        for c in fewer:
            told = told.flat_range_product(isl.Map.from_pw_aff(loop_dim(domain, c)).intersect_domain(domain))
        if told.is_injective():
            chosen = fewer
    total: Expr = const_int(0)
    low: Expr
    high: Expr
    unbounded = 0
    for k in chosen:
        alone = domain.project_out(isl.dim_type.set, k + 1, len(s.iters) - k - 1).project_out(isl.dim_type.set, 0, k)
        found = bounds(alone.project_out_all_params(), 0)
        if found is not None and max(map(abs, found)) >= DYNAMIC_EXTENT // 2:
            unbounded += 1
            low, high = const_int(-DYNAMIC_EXTENT - 1), const_int(DYNAMIC_EXTENT)
        else:
            low, high = (_size(pa, scop) for pa in (alone.dim_min(0), alone.dim_max(0)))
        i = Var(s.iters[k])
        step = _minus(i, low) if signs[k] > 0 else _minus(high, i)
        extent = fold(Binary("+", _minus(high, low), const_int(1), i64))
        scaled = total if total == const_int(0) else fold(Binary("*", total, extent, i64))
        total = step if scaled == const_int(0) else Binary("+", scaled, step, i64)
    return total if unbounded < 2 else None  # two of them, multiplied, need more than 64 bits


def _directions(scop: Scop, s: Statement) -> list[int] | None:
    """For each iterator whether its loop runs upwards (1) or downwards (-1); None where loops are no iterators."""
    members = loops_around(scop.tree, s.name)
    if len(members) != len(s.iters):
        return None
    signs = []
    for k, m in enumerate(members):
        dim = loop_dim(s.domain, k)
        value = m.schedule[s.name]
        if value.is_equal(dim):
            signs.append(1)
        elif value.is_equal(dim.neg()):
            signs.append(-1)
        else:
            return None
    return signs


def _size(pa: isl.PwAff, scop: Scop) -> Expr:
    return fold(function_expr(pa.coalesce(), (), pa.domain().intersect(scop.context)))


def _minus(a: Expr, b: Expr) -> Expr:
    return a if b == const_int(0) else fold(Binary("-", a, b, i64))
