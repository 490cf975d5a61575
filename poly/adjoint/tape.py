"""Tapes: local arrays for values that the program overwrites and its derivative needs.

A tape is indexed by as few iterators as tell its values apart. Two instances that read what one instance has written
share a place (`{ place -> writer }` is single-valued); where several instances may have written it, places are those of
the iterators alone (`{ instance -> place }` is injective). Its box is that of the places; the number of values that it
really holds is counted exactly for the notes.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyc.poly.access import accesses_of, array_elements, element_map, guarded_loads
from polyc.poly.adjoint.errors import NotDifferentiable
from polyc.poly.adjoint.values import Order
from polyc.poly.dependences import value_flow_among
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Expr, Load, Var, const_int
from polyc.poly.forms.affine import set_space, to_set
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.forms.ranges import bounds
from polyc.poly.records import dataclass
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import DYNAMIC_EXTENT, Scop, Statement
from polyc.poly.tree import loops_around

SMALL = 1024
"""Sizes at which a coordinate that they bound is far from `DYNAMIC_EXTENT`."""


@dataclass(frozen=True, eq=False)
class Tape:
    """`index` is the place of an instance, `shape` the box; `keep` the instances that write, one for each place."""

    index: tuple[Expr, ...]
    shape: tuple[Expr, ...]
    keep: isl.Set
    places: isl.Set


def tape_of(scop: Scop, order: Order, s: Statement, load: Load, needed: isl.Set) -> Tape:
    """The tape of the values that the instances `needed` of `s` read by `load`.

    Raises:
        NotDifferentiable: data decide how often the statement runs, and nothing bounds it.
    """
    needed = bounded(scop, s, needed)
    chosen = _iterators(scop, order, s, load, needed)
    places = _onto(needed, chosen)
    index: list[Expr] = []
    shape: list[Expr] = []
    flat = places.range().intersect_params(scop.context)
    for k, i in enumerate(chosen):
        if not _ends(flat, k):
            what = f"the values of {load.array} would have to be kept for each iteration of loop {s.iters[i]}"
            raise NotDifferentiable(f"{what}, whose number nothing bounds", s.span)
        low, high = flat.dim_min(k), flat.dim_max(k)
        index.append(_minus(Var(s.iters[i]), _size(low, scop)))
        shape.append(_extent(high.sub(low).add_constant_val(isl.Val(1)), scop))
    one_each = places.reverse().lexmin().range()  # the first instance of each place
    return Tape(tuple(index), tuple(shape), one_each.coalesce(), flat)


def _ends(flat: isl.Set, k: int) -> bool:
    """Whether something bounds a coordinate: loops that data end are in sets with ends that nobody means."""
    if not flat.dim_is_bounded(isl.dim_type.set, k):
        return False
    small = flat
    for p in range(flat.dim(isl.dim_type.param)):  # what grows with the sizes is bounded by them
        small = small.upper_bound_val(isl.dim_type.param, p, isl.Val(SMALL))
    found = bounds((flat if small.is_empty() else small).project_out_all_params(), k)
    return found is None or max(abs(found[0]), abs(found[1])) < DYNAMIC_EXTENT // 2


def _size(pa: isl.PwAff, scop: Scop) -> Expr:
    """A bound as an expression of the sizes."""
    return fold(function_expr(pa.coalesce(), (), pa.domain().intersect(scop.context)))


def _minus(a: Expr, b: Expr) -> Expr:
    return a if b == const_int(0) else fold(Binary("-", a, b, i64))


def _extent(pa: isl.PwAff, scop: Scop) -> Expr:
    """The same of an extent, which is 0 for sizes at which nothing is kept."""
    extent = _size(pa, scop)
    space = set_space("", [], scop.params)
    negative = to_set(Binary("<", extent, const_int(0), bool_), space).params().intersect(scop.context)
    return extent if negative.is_empty() else Binary("max", extent, const_int(0), i64)


def bounded(scop: Scop, s: Statement, needed: isl.Set) -> isl.Set:
    """Of instances of `s` only those at which nothing is accessed outside of its array, by the statement or by those
    that run whenever it does: these bound loops that data end."""
    if not s.dynamic:
        return needed
    for q in scop.statements.values():
        if runs_with(scop, q, s):
            space = set_space(q.name, q.iters, scop.params)
            domain = q.domain.intersect_params(scop.context)
            for load, where in _performed(q, domain, space):
                array = scop.arrays[load.array]
                inside = element_map(load, array, space)[0].intersect_range(array_elements(array, scop.params))
                fine = inside.domain().intersect(where).union(domain.subtract(where))
                needed = needed.intersect(fine.set_tuple_name(s.name))
    return needed.coalesce()


def runs_with(scop: Scop, q: Statement, s: Statement) -> bool:
    """Whether `q` is in the loops around `s`, and runs in each of their iterations."""
    if q is s:
        return True
    if q.predicate is not None or q.iters != s.iters or q.dynamic != s.dynamic:
        return False
    around = loops_around(scop.tree, s.name)
    same = [m.name for m in around] == [m.name for m in loops_around(scop.tree, q.name)]
    own = isl.Id.read_from_str(isl.DEFAULT_CONTEXT, s.name)
    return same and all(m.schedule[q.name].set_tuple_id(isl.dim_type.in_, own).is_equal(m.schedule[s.name])
                        for m in around)  # fmt: skip


def _performed(q: Statement, domain: isl.Set, space: isl.Space) -> Iterator[tuple[Load, isl.Set]]:
    """The elements that a statement surely reads or writes when it runs, and the instances that do."""
    for e in (q.value, *q.index):
        for load, where, sure in guarded_loads(e, domain, space):
            if sure and q.predicate is None:
                yield load, where
    if q.predicate is None:
        yield q.target, domain


def _onto(needed: isl.Set, chosen: list[int]) -> isl.Map:
    """`{ instance -> [chosen iterators] }`."""
    relation = isl.Map.identity(needed.get_space().map_from_set()).intersect_domain(needed)
    for k in reversed(range(needed.dim(isl.dim_type.set))):
        if k not in chosen:
            relation = relation.project_out(isl.dim_type.out, k, 1)
    return relation.reset_tuple_id(isl.dim_type.out) if relation.has_tuple_id(isl.dim_type.out) else relation


def _iterators(scop: Scop, order: Order, s: Statement, load: Load, needed: isl.Set) -> list[int]:
    """As few iterators as tell the values apart; of equals the outer ones stay."""
    writers = _writers(scop, order, s, load, needed)

    def enough(chosen: list[int]) -> bool:
        places = _onto(needed, chosen)
        if writers is None:
            return bool(places.is_injective())
        told = places.reverse()
        return all(bool(told.apply_range(w).is_single_valued()) for w in writers) and (
            len(writers) == 1 or _apart(told, writers)
        )

    chosen = list(range(needed.dim(isl.dim_type.set)))
    for k in reversed(range(needed.dim(isl.dim_type.set))):
        if enough(fewer := [c for c in chosen if c != k]):
            chosen = fewer
    return chosen


def _apart(told: isl.Map, writers: list[isl.Map]) -> bool:
    """Whether no place has values of two statements."""
    used = [told.apply_range(w).domain() for w in writers]
    return all(bool(a.is_disjoint(b)) for k, a in enumerate(used) for b in used[:k])


def _writers(scop: Scop, order: Order, s: Statement, load: Load, needed: isl.Set) -> list[isl.Map] | None:
    """`{ instance -> the one that wrote what it reads }`, by writing statement; None when that is not certain.

    A statement may read the element in several places, each in instances of its own (the arms of a condition).
    """
    found = [a for a in accesses_of(scop).get((s.name, load.array), ()) if not a.write and a.load == load]
    writes = [a for (_, array), some in accesses_of(scop).items() if array == load.array for a in some if a.write]
    if not found or not all(a.must for a in (*found, *writes)):
        return None
    maps: list[isl.Map] = []
    value_flow_among(scop, [*writes, *found], "RAW").foreach_map(maps.append)
    backwards = [m.reverse().intersect_domain(needed) for m in maps]
    known = isl.Set.empty(needed.get_space())
    for m in backwards:
        known = known.union(m.domain())
    return [m for m in backwards if not m.is_empty()] if needed.is_subset(known) else None
