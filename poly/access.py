"""Access relations, derived from the statements' expressions."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import islpy as isl

from poly.affine import NotAffine, to_pw_aff, to_set
from poly.expr import Binary, Expr, Load, Select
from poly.scop import Scop, Statement


@dataclass(frozen=True)
class Access:
    """`map` is `{ S[iters] -> A[subscripts] }`, restricted to the instances that perform it.

    `must` is False when it over-approximates: the statement is predicated, the load sits in a
    data-dependent arm, or a subscript is not affine (then that dimension covers the array).
    """

    stmt: str
    array: str
    write: bool
    must: bool
    map: isl.Map
    load: Load


_cache: dict[int, tuple[weakref.ref[Scop], tuple[Access, ...]]] = {}


def accesses(scop: Scop) -> tuple[Access, ...]:
    """All accesses of a Scop, statement by statement, reads before the write (cached)."""
    known = _cache.get(id(scop))
    if known is not None and known[0]() is scop:
        return known[1]
    found = tuple(a for s in scop.statements.values() for a in statement_accesses(scop, s))
    key = id(scop)
    _cache[key] = (weakref.ref(scop, lambda _: _cache.pop(key, None)), found)
    return found


def statement_accesses(scop: Scop, stmt: Statement) -> list[Access]:
    """Reads (subscripts, bounds and predicate included), then the write."""
    reads: list[tuple[Load, isl.Set, bool]] = []
    for bound in stmt.dynamic:
        _collect(bound.lo, stmt.domain, True, reads)
        _collect(bound.hi, stmt.domain, True, reads)
    sure = not stmt.dynamic
    if stmt.predicate is not None:
        _collect(stmt.predicate, stmt.domain, sure, reads)
        sure = False
    for e in (*stmt.index, stmt.value):
        _collect(e, stmt.domain, sure, reads)
    out = [_access(scop, stmt, load, where, must, False) for load, where, must in reads]
    out.append(_access(scop, stmt, stmt.target, stmt.domain, sure, True))
    return out


def _collect(expr: Expr, where: isl.Set, must: bool, out: list[tuple[Load, isl.Set, bool]]) -> None:
    """All loads of `expr`, with the instances that reach them (`Select`, `and`, `or` are lazy)."""
    if isinstance(expr, Select) or (isinstance(expr, Binary) and expr.op in ("and", "or")):
        first, *rest = expr.children()
        _collect(first, where, must, out)
        try:
            holds = to_set(first, where.get_space())
            sides = [holds, holds.complement()] if isinstance(expr, Select) else [holds]
            if isinstance(expr, Binary) and expr.op == "or":
                sides = [holds.complement()]
        except NotAffine:
            sides, must = [isl.Set.universe(where.get_space())] * 2, False
        for arm, side in zip(rest, sides):
            _collect(arm, where.intersect(side), must, out)
        return
    if isinstance(expr, Load):
        out.append((expr, where, must))
    for child in expr.children():
        _collect(child, where, must, out)


def _access(scop: Scop, stmt: Statement, load: Load, where: isl.Set, must: bool, write: bool) -> Access:
    array = scop.arrays[load.array]
    space = stmt.domain.get_space()
    result = isl.Map.from_domain(where)
    for e, size in zip(load.index, array.shape, strict=True):
        try:
            dim = isl.Map.from_pw_aff(to_pw_aff(e, space))
        except NotAffine:
            dim, must = _whole(space, size), False
        result = result.flat_range_product(dim)
    return Access(stmt.name, load.array, write, must, result.set_tuple_name(isl.dim_type.out, load.array), load)


def _whole(space: isl.Space, size: Expr) -> isl.Map:
    """`{ S[..] -> [x] : 0 <= x < size }`."""
    top = isl.Map.from_pw_aff(to_pw_aff(size, space))
    return top.apply_range(isl.Map("{ [t] -> [x] : 0 <= x < t }"))

