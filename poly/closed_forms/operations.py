"""Floating-point operations of a statement, each with the instances that perform it."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyc.poly.access import guard
from polyc.poly.expr import Binary, Call, Expr, Select
from polyc.poly.forms.affine import set_space
from polyc.poly.scop import Scop, Statement

COUNTED = ("+", "-", "*", "/", "//", "%", "**", "min", "max")


def operations(scop: Scop, s: Statement) -> Iterator[tuple[int, isl.Set, bool]]:
    """`(operations, instances that perform them, whether all of these surely do)`.

    `+ - * / // % ** min max` on floats and every intrinsic are one operation, `fma` is two;
    negation, comparison, conversion and selection are none.
    """
    space = set_space(s.name, s.iters, scop.params)
    domain, sure = s.domain.intersect_params(scop.context), not s.dynamic
    if s.predicate is not None:
        yield from _visit(s.predicate, domain, sure, space)
        domain, exact = guard(s.predicate, True, domain, space)
        sure = sure and exact
    yield from _visit(s.value, domain, sure, space)


def _visit(e: Expr, where: isl.Set, sure: bool, space: isl.Space) -> Iterator[tuple[int, isl.Set, bool]]:
    own = _own(e)
    if own:
        yield own, where, sure
    if isinstance(e, Select):
        yield from _visit(e.cond, where, sure, space)
        for arm, truth in ((e.a, True), (e.b, False)):
            inside, exact = guard(e.cond, truth, where, space)
            yield from _visit(arm, inside, sure and exact, space)
    elif isinstance(e, Binary) and e.op in ("and", "or"):
        yield from _visit(e.a, where, sure, space)
        inside, exact = guard(e.a, e.op == "and", where, space)
        yield from _visit(e.b, inside, sure and exact, space)
    else:
        for child in e.children():
            yield from _visit(child, where, sure, space)


def _own(e: Expr) -> int:
    if not e.dtype.is_float:
        return 0
    if isinstance(e, Call):
        return 2 if e.fn == "fma" else 1
    return 1 if isinstance(e, Binary) and e.op in COUNTED else 0
