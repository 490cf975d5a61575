"""A loop as two, one for each digit of its iterator: `p = W * high + low` with `0 <= low < W`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeGuard

import islpy as isl

from polyc.poly.certificates import expressions
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Unary, Var, const_int, variables, walk
from polyc.poly.records import dataclass
from polyc.poly.rewriting.changed_loops import called, changed, iterators_of, mapped, points_of, tidy
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Member, Node, loop_dim, loop_names, loops_below


@dataclass(frozen=True)
class Digits:
    """An iterator as `width * high + low`, with `0 <= low < width`."""

    of: str
    width: int
    high: str
    low: str

    def value(self) -> Expr:
        """The iterator."""
        return Binary("+", Binary("*", const_int(self.width), Var(self.high), i64), Var(self.low), i64)


def in_digits(scop: Scop, loop: str, width: int) -> tuple[Scop, tuple[str, str]] | None:
    """The program with two loops for one, the inner one of `width` iterations, and their names; None where a statement
    does not fit."""
    iters, turned = iterators_of(scop, loop, dynamic=True), False
    if iters is None:
        iters, turned = counted_down(scop, loop), True
    if iters is None:
        return None
    names = _Names(scop)
    high, low = names.fresh(loop), names.fresh(loop)
    change = {}
    inner = {}
    for name, i in iters.items():
        found = _statement(scop.statements[name], Digits(i, width, high, low))
        if found is None:
            return None
        change[name] = found
        inner[name] = found[0].iters.index(low)
    scop = changed(scop, change)
    return replace(scop, tree=_split(scop, scop.tree, loop, (high, low), inner, turned)), (high, low)


def counted_down(scop: Scop, loop: str) -> dict[str, str] | None:
    """The iterator of each statement of which the loop's value is a number less it; None where one has none."""
    member = next(m for m in loops_below(scop.tree) if m.name == loop)
    found = {}
    for name, value in member.schedule.items():
        s = scop.statements[name]
        sums = [(i, value.add(loop_dim(s.domain, k))) for k, i in enumerate(s.iters)]
        own = next((i for i, total in sums if total.n_piece() == 1 and total.is_cst()), None)
        if own is None or any(d.iter == own for d in s.dynamic):
            return None
        found[name] = own
    return found


def _statement(s: Statement, d: Digits) -> tuple[Statement, isl.PwMultiAff] | None:
    """The statement over the digits, and `{ new instance -> old instance }`."""
    k = s.iters.index(d.of)
    iters = (*s.iters[:k], d.high, d.low, *s.iters[k + 1 :])
    space = isl.Set.universe(s.domain.get_space()).insert_dims(isl.dim_type.set, k + 1, 1).set_tuple_name(s.name)
    parts = [loop_dim(space, x) for x in range(len(iters))]
    width = isl.Val(d.width)
    old = [*parts[:k], parts[k].scale_val(width).add(parts[k + 1]), *parts[k + 2 :]]
    back = points_of(old, s.domain)
    inside = space.lower_bound_val(isl.dim_type.set, k + 1, isl.Val(0))
    inside = inside.upper_bound_val(isl.dim_type.set, k + 1, width.sub(isl.Val(1)))
    domain = _in_box(s.domain.preimage_pw_multi_aff(back).intersect(inside), k, d.width)
    if domain is None:
        return None
    new = mapped(s, lambda e: tidy(_digits(e, d)), whole=True)
    if any(is_division(x) and variables(x) >= {d.high, d.low} for e in expressions(new) for x in walk(e)):
        return None
    return replace(new, iters=iters, domain=called(domain, iters)), back


def is_division(e: Expr) -> TypeGuard[Binary]:
    """Whether an expression is a quotient or a remainder of numbers in i64."""
    return isinstance(e, Binary) and e.op in ("//", "%") and e.dtype == i64


def _in_box(domain: isl.Set, k: int, width: int) -> isl.Set | None:
    """The set as a box of the dimensions k and k + 1, and other constraints on them; None where it needs remainders, or
    the rows do not all end at the same place."""

    def without(dim: int) -> isl.Set:
        name = domain.get_tuple_name()
        return domain.project_out(isl.dim_type.set, dim, 1).insert_dims(isl.dim_type.set, dim, 1).set_tuple_name(name)

    box = without(k).intersect(without(k + 1)).coalesce().remove_redundancies()
    if not box.is_equal(domain):
        box = isl.Set.from_basic_set(box.simple_hull())
        box = box.intersect(domain.gist(box)).coalesce().remove_redundancies()
    for part in box.get_basic_sets():
        if part.dim(isl.dim_type.div):
            return None
        for c in part.get_constraints():
            high, low = (c.get_coefficient_val(isl.dim_type.set, x).to_python() for x in (k, k + 1))
            if low and high == width * low:
                return None
    return box


def _digits(e: Expr, d: Digits) -> Expr:
    """The expression in terms of the digits."""
    if isinstance(e, Var):
        return d.value() if e.name == d.of else e
    kids = e.children()
    e = e.with_children(tuple(_digits(c, d) for c in kids)) if kids else e
    if not (is_division(e) and isinstance(e.b, Const) and int(e.b.value) > 1):
        return e
    by, constant, low = int(e.b.value), 0, 0
    others = []
    for f, x in terms(e.a):
        if isinstance(x, Const):
            constant += f * int(x.value)
        elif x == Var(d.low):
            low += f
        else:
            others.append((f, x))
    last: Expr = Var(d.low)
    if low == -1:  # counted down: c - low = (c - (W - 1)) + (W - 1 - low)
        last, constant = Binary("-", const_int(d.width - 1), last, i64), constant - (d.width - 1)
    others.append((constant, const_int(1)))
    if low not in (-1, 1) or by % d.width or any(f % d.width for f, _ in others):
        return e
    whole = [(f // by, x) for f, x in others if f % by == 0]
    rows = _sum([(f // d.width, x) for f, x in others if f % by])
    more = fold(Binary(e.op, rows, const_int(by // d.width), i64))
    return _sum([*whole, (1, more)]) if e.op == "//" else _sum([(d.width, more), (1, last)])


def terms(e: Expr) -> Iterator[tuple[int, Expr]]:
    """Factors and what they multiply, of a sum; a constant multiplies one."""
    if isinstance(e, Const):
        yield int(e.value), const_int(1)
    elif isinstance(e, Binary) and e.op in ("+", "-"):
        yield from terms(e.a)
        yield from ((f if e.op == "+" else -f, x) for f, x in terms(e.b))
    elif isinstance(e, Unary) and e.op == "neg":
        yield from ((-f, x) for f, x in terms(e.a))
    elif isinstance(e, Binary) and e.op == "*" and isinstance(e.a, Const):
        yield from ((int(e.a.value) * f, x) for f, x in terms(e.b))
    else:
        yield 1, e


def _sum(terms: Sequence[tuple[int, Expr]]) -> Expr:
    """What `terms` has taken apart, as one expression."""
    parts = [x if f == 1 else fold(Binary("*", const_int(f), x, i64)) for f, x in terms if f]
    return reduce(lambda a, b: Binary("+", a, b, i64), parts) if parts else const_int(0)


def _split(scop: Scop, node: Node, loop: str, names: tuple[str, str], inner: Mapping[str, int], turned: bool) -> Node:
    """The tree with the loops `names` for one; `inner`: by statement the dimension of the inner one; `turned`: both
    count down."""
    kids = tuple(_split(scop, c, loop, names, inner, turned) for c in node.children())
    if isinstance(node, Band) and any(m.name == loop for m in node.members):
        members = (x for m in node.members for x in _members(scop, m, loop, names, inner, turned))
        return Band(tuple(members), kids[0])
    return node.with_children(kids) if kids else node


def _members(
    scop: Scop, m: Member, loop: str, names: tuple[str, str], inner: Mapping[str, int], turned: bool
) -> Iterator[Member]:
    if m.name != loop:
        yield m
        return
    for name, back in zip(names, (1, 0), strict=True):
        digits = {n: loop_dim(scop.statements[n].domain, k - back) for n, k in inner.items()}
        yield Member(name, {n: v.neg() if turned else v for n, v in digits.items()})


class _Names:
    """Names that a program does not have yet."""

    def __init__(self, scop: Scop) -> None:
        self.taken = {*scop.params, *scop.arrays, *loop_names(scop.tree)}
        self.taken.update(i for s in scop.statements.values() for i in s.iters)

    def fresh(self, stem: str) -> str:
        """`stem_0`, or the next one that is free."""
        k = 0
        while f"{stem}_{k}" in self.taken:
            k += 1
        self.taken.add(f"{stem}_{k}")
        return f"{stem}_{k}"
