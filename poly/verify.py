"""The Scop's invariants, checked."""

from __future__ import annotations

from typing import NoReturn

import islpy as isl

from polyc.poly.dtypes import bool_
from polyc.poly.errors import ScheduleError, ScopError
from polyc.poly.expr import Binary, Expr, Load, Select, StraightLine, Temp, Var, walk
from polyc.poly.ordering.coverage import check_coverage
from polyc.poly.reduction import reads_updated
from polyc.poly.scop import Scop, Statement
from polyc.poly.words import counted


def verify(scop: Scop) -> None:
    """Raise `ScopError` with one clear line if `scop` breaks an invariant.

    Checked: names resolve and are unique, ranks and dtypes agree, domains have the
    statement's space, inputs are not written, reductions have their form, and the initial
    tree schedules every instance exactly once.
    """
    _names(scop)
    for s in scop.statements.values():
        _statement(scop, s)
    try:
        check_coverage(scop, scop.tree)
    except ScheduleError as error:
        _fail(scop, str(error), "(schedule)")


def _fail(scop: Scop, message: str, about: str = "") -> NoReturn:
    error = ScopError(f"{scop.name}: {message}")
    error.about = about
    raise error


def _names(scop: Scop) -> None:
    for n, a in scop.arrays.items():
        if n != a.name:
            _fail(scop, f"array '{a.name}' is filed under '{n}'", n)
    for n in (*scop.args, *scop.results):
        if n not in scop.arrays:
            _fail(scop, f"'{n}' is an argument or result but no array", n)
    for n, a in scop.arrays.items():
        if a.kind in ("in", "inout") and n not in scop.args:
            _fail(scop, f"'{n}' is declared '{a.kind}' but is no argument", n)
        if a.kind == "out" and n not in scop.results:
            _fail(scop, f"'{n}' is declared 'out' but is no result", n)
        for e in (x for size in a.shape for x in walk(size)):
            if isinstance(e, Load) or (isinstance(e, Var) and e.name not in scop.params):
                _fail(scop, f"the shape of '{n}' uses more than the sizes {', '.join(scop.params) or '(none)'}", n)
    for n, s in scop.statements.items():
        if n != s.name:
            _fail(scop, f"statement {s.name} is filed under {n}", n)
        if len(set(s.iters)) != len(s.iters):
            _fail(scop, f"statement {n} uses an iterator name twice: {', '.join(s.iters)}", n)
    for n in scop.args:
        if n in scop.arrays and scop.arrays[n].kind in ("out", "local"):
            _fail(scop, f"argument '{n}' is declared '{scop.arrays[n].kind}'", n)
    for n in scop.results:
        if scop.arrays[n].kind != "out":
            _fail(scop, f"result '{n}' is declared '{scop.arrays[n].kind}'", n)
    iters = {i for s in scop.statements.values() for i in s.iters}
    kinds = [set(scop.arrays), set(scop.params), set(scop.statements), iters]
    for n in sorted(n for k, a in enumerate(kinds) for b in kinds[:k] for n in a & b):
        _fail(scop, f"the name '{n}' is used for two things", n)


def _statement(scop: Scop, s: Statement) -> None:
    if s.domain.get_tuple_name() != s.name or s.domain.dim(isl.dim_type.set) != len(s.iters):
        _fail(scop, f"statement {s.name} has iterators {s.iters} but the domain {s.domain}", s.name)
    if s.array not in scop.arrays:
        _fail(scop, f"statement {s.name} writes the unknown array '{s.array}'", s.name)
    if scop.arrays[s.array].kind == "in":
        _fail(scop, f"statement {s.name} writes the input '{s.array}'", s.name)
    if s.value.dtype != scop.arrays[s.array].dtype:
        _fail(scop, f"statement {s.name} stores {s.value.dtype} in '{s.array}' ({scop.arrays[s.array].dtype})", s.name)
    if s.predicate is not None and s.predicate.dtype != bool_:
        _fail(scop, f"the predicate of {s.name} is {s.predicate.dtype}", s.name)
    known = {*s.iters, *scop.params}
    roots = [s.target, s.value, *(x for d in s.dynamic for x in (d.lo, d.hi))]
    for root in roots if s.predicate is None else [*roots, s.predicate]:
        for e in walk(root):
            _expression(scop, s, e, known)
        for name in sorted(_unnamed(root)):
            _fail(scop, f"statement {s.name} uses '{name}' before it is computed", s.name)
    if s.reduction is not None and not _is_reduction(s, scop.context):
        _fail(scop, f"statement {s.name} is marked a '{s.reduction}' reduction but is not of that form", s.name)


def _unnamed(e: Expr) -> set[str]:
    """The names that `e` uses and has not computed before in a straight line of its own."""
    if isinstance(e, Temp):
        return {e.name}
    if not isinstance(e, StraightLine):
        return set[str]().union(*map(_unnamed, e.children()))
    known: set[str] = set()
    out: set[str] = set()
    for name, value in zip(e.names, e.values, strict=True):
        out |= _unnamed(value) - known
        known.add(name)
    return out | (_unnamed(e.result) - known)


def _expression(scop: Scop, s: Statement, e: Expr, known: set[str]) -> None:
    if isinstance(e, Var) and e.name not in known:
        _fail(scop, f"statement {s.name} uses the unknown variable '{e.name}'", s.name)
    if isinstance(e, Load):
        if e.array not in scop.arrays:
            _fail(scop, f"statement {s.name} reads the unknown array '{e.array}'", s.name)
        a = scop.arrays[e.array]
        if len(a.shape) != len(e.index):
            _fail(
                scop,
                f"statement {s.name} uses {counted(len(e.index), 'subscript')} on '{a.name}' of rank {len(a.shape)}",
                s.name,
            )
        if a.dtype != e.dtype:
            _fail(scop, f"statement {s.name} reads '{a.name}' ({a.dtype}) as {e.dtype}", s.name)
    if isinstance(e, Binary) and e.a.dtype != e.b.dtype:
        _fail(scop, f"statement {s.name}: operands of '{e.op}' are {e.a.dtype} and {e.b.dtype}", s.name)
    if isinstance(e, Select) and not (e.a.dtype == e.b.dtype == e.dtype and e.cond.dtype == bool_):
        _fail(scop, f"statement {s.name}: the arms of a select are {e.a.dtype} and {e.b.dtype}", s.name)


def _is_reduction(s: Statement, context: isl.Set) -> bool:
    v = s.value
    if not isinstance(v, Binary) or not (v.op == s.reduction or (v.op == "-" and s.reduction == "+")):
        return False
    own = isinstance(v.a, Load) and v.a.array == s.array and v.a.index == s.index
    return own and reads_updated(s.target, [v.b], s.domain.intersect_params(context)) is None
