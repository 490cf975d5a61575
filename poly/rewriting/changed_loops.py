"""Loops and statements changed together: new iterators in what statements compute, in their domains and in the tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Unary, Var, const_int, rewrite, walk
from polyc.poly.forms.affine import terms_of
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Member, Node, loop_dim, loops_below

Change = Mapping[str, tuple[Statement, isl.PwMultiAff]]
"""New statements and `{ new instance -> old instance }`."""


def iterators_of(scop: Scop, loop: str, dynamic: bool = False) -> dict[str, str] | None:
    """The iterator of each statement that a loop follows, None where it follows something else, or a loop in it has
    bounds that data decide (`dynamic`: where it has such bounds itself)."""
    found = {}
    member = next(m for m in loops_below(scop.tree) if m.name == loop)
    for name, value in member.schedule.items():
        s = scop.statements[name]
        own = next((i for k, i in enumerate(s.iters) if value.plain_is_equal(loop_dim(s.domain, k))), None)
        if own is None or (s.dynamic and not dynamic) or any(d.iter == own for d in s.dynamic):
            return None
        found[name] = own
    return found


def called(points: isl.Set, iters: tuple[str, ...]) -> isl.Set:
    """A domain with the iterators' names, which expressions go by."""
    points = points.coalesce()
    for k, name in enumerate(iters):
        points = points.set_dim_name(isl.dim_type.set, k, name)
    return points


def mapped(s: Statement, new: Callable[[Expr], Expr], whole: bool = False) -> Statement:
    """The statement with `new` applied to each part of its expressions, or to each as a whole (subscripts of what it
    writes, too)."""
    each = new if whole else lambda e: rewrite(e, new)
    return replace(
        s,
        index=tuple(each(e) for e in s.index),
        value=each(s.value),
        predicate=None if s.predicate is None else each(s.predicate),
        dynamic=tuple(replace(d, lo=each(d.lo), hi=each(d.hi)) for d in s.dynamic),
    )


def points_of(old: Sequence[isl.PwAff], domain: isl.Set) -> isl.PwMultiAff:
    """`{ new instance -> old instance }` from the old iterators as functions of the new ones."""
    space = old[0].get_domain_space().map_from_domain_and_range(domain.get_space())
    found = isl.MultiPwAff.zero(space)
    for k, value in enumerate(old):
        found = found.set_at(k, value)
    return isl.PwMultiAff.from_multi_pw_aff(found)


def simplest(value: isl.PwAff, domain: isl.Set) -> isl.PwAff:
    """The same on the domain, in one piece where one of its pieces holds everywhere."""
    for _, piece in value.get_pieces():
        whole = isl.PwAff.from_aff(piece)
        if domain.is_subset(whole.eq_set(value)):
            return whole
    return value


def tidy(e: Expr) -> Expr:
    """The expression with the sums in it brought together."""
    whole = e.dtype == i64 and isinstance(e, Binary) and not any(isinstance(x, Cast) for x in walk(e))
    terms = terms_of(e) if whole else None
    if terms is None:
        kids = e.children()
        return e.with_children(tuple(map(tidy, kids))) if kids else e
    constant, total = terms.pop("", 0), None
    for name, factor in sorted(terms.items(), key=lambda t: t[1] < 0):  # N - i, not -i + N
        size = abs(factor)
        term: Expr = Var(name) if size == 1 else Binary("*", const_int(size), Var(name), i64)
        if total is None:
            total = term if factor > 0 else Unary("neg", term, i64)
        else:
            total = Binary("+" if factor > 0 else "-", total, term, i64)
    return const_int(constant) if total is None else plus(total, constant)


def plus(e: Expr, by: int) -> Expr:
    """`e + by`, simplified."""
    if not by:
        return e
    if isinstance(e, Binary) and e.op in "+-" and isinstance(e.b, Const) and not isinstance(e.b.value, float):
        return plus(e.a, by + (int(e.b.value) if e.op == "+" else -int(e.b.value)))
    return fold(Binary("+" if by > 0 else "-", e, const_int(abs(by)), i64))


def changed(scop: Scop, change: Change, shifts: Mapping[str, int] | None = None) -> Scop:
    """The program with new statements; loops in `shifts` have values that are larger by so much."""
    statements = {n: change[n][0] if n in change else s for n, s in scop.statements.items()}
    return replace(scop, statements=statements, tree=_moved(scop.tree, change, shifts or {}))


def _moved(node: Node, change: Change, shifts: Mapping[str, int]) -> Node:
    """The tree over the new instances."""
    kids = tuple(_moved(c, change, shifts) for c in node.children())
    if isinstance(node, Band):
        members = tuple(_member(m, change, shifts.get(m.name, 0)) for m in node.members)
        return Band(members, kids[0], node.permutable)
    if isinstance(node, Filter):
        domain = dict(node.domain)
        for name in domain.keys() & change.keys():
            new, back = change[name]
            domain[name] = called(domain[name].preimage_pw_multi_aff(back).intersect(new.domain), new.iters)
        return Filter(domain, kids[0])
    return node.with_children(kids) if kids else node


def _member(m: Member, change: Change, by: int) -> Member:
    """The loop over the new instances, its values larger by so much."""
    schedule = dict(m.schedule)
    for name in schedule.keys() & change.keys():
        new, back = change[name]
        value = simplest(schedule[name].pullback_pw_multi_aff(back).coalesce(), new.domain)
        schedule[name] = value.add_constant_val(isl.Val(by)) if by else value
    return replace(m, schedule=schedule)
