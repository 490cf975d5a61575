"""Exponentials of what is never positive, as softmax has them: `exp(x - top)` after `top = max(top, x)`.

Their results are at most 1: large ones need no care, which a general `exp` spends a quarter of
its time on. That nothing is larger than the maximum is found from the accesses: each instance
subtracts an element that an update by `max` has already compared with this very minuend, and
neither has been written anew in between (a softmax in place writes each element after it is read).
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyc.emit.loop_ir.loops import Function, Stmt, Store
from polyc.emit.loop_ir.rewrite import over_bodies
from polyc.poly.dependences import conflicts
from polyc.poly.expr import Binary, Call, Expr, Load, Var, loads, rewrite, walk
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff
from polyc.poly.records import replace
from polyc.poly.scop import Scop, Statement

NAME = "exp_nonpositive"


def sharpen(scop: Scop, fn: Function) -> Function:
    """`fn` (loops of `scop`) with `exp_nonpositive` for `exp` in the statements where that is proved.

    Not where the order of sums is fixed: the bits of such a program are the same whatever it is joined with, and on
    GPUs; the proof depends on what else is in the Scop, and the two functions round differently.
    """
    if not scop.reassociate:
        return fn
    found = frozenset(s.name for s in scop.statements.values() if _never_positive(scop, s))
    return replace(fn, body=_sharpened(fn.body, found)) if found else fn


def _sharpened(stmt: Stmt, found: frozenset[str]) -> Stmt:
    if isinstance(stmt, Store) and stmt.instance is not None and stmt.instance[0] in found:
        return replace(stmt, value=rewrite(stmt.value, _renamed))
    return over_bodies(stmt, _sharpened, found)


def _renamed(e: Expr) -> Expr:
    return Call(NAME, e.args, e.dtype) if isinstance(e, Call) and e.fn == "exp" else e


def _never_positive(scop: Scop, stmt: Statement) -> bool:
    """Whether the statement has exponentials, and none of anything positive."""
    calls = [e for e in walk(stmt.value) if isinstance(e, Call) and e.fn == "exp"]
    return bool(calls) and all(_below_maximum(scop, stmt, c.args[0]) for c in calls)


def _below_maximum(scop: Scop, stmt: Statement, e: Expr) -> bool:
    """Whether `e` is `minuend - top`, with an element of `top` that is a maximum over the minuend too."""
    if not isinstance(e, Binary) or e.op != "-" or not isinstance(e.b, Load) or not e.dtype.is_float:
        return False
    return any(_covers(scop, m, stmt, e.a, e.b) for m in scop.statements.values() if m.array == e.b.array)


def _covers(scop: Scop, maximum: Statement, stmt: Statement, minuend: Expr, top: Load) -> bool:
    """Whether each instance of `stmt` comes after an instance of `maximum` that took the same value into account."""
    if maximum.reduction != "max" or maximum.predicate is not None or maximum.dynamic:
        return False
    before = conflicts(scop).ordered.get((maximum.name, stmt.name))
    if before is None or not isinstance(maximum.value, Binary) or maximum.value.a != maximum.target:
        return False
    read = {load.array for load in loads(minuend)}
    pairs = _same(maximum.value.b, minuend)
    if pairs is None or top.array in read:
        return False
    try:
        for a, b in [*pairs, *zip(maximum.index, top.index)]:
            before = before.intersect(_equal(scop, maximum, a, stmt, b))
    except NotAffine:
        return False
    for other in scop.statements.values():
        raised = other.array == top.array and other.reduction == "max"
        if other.array in {top.array, *read} and not raised:
            before = before.subtract(_between(scop, maximum, other, stmt))
    return bool(stmt.domain.intersect_params(scop.context).is_subset(before.range()))


def _between(scop: Scop, first: Statement, other: Statement, last: Statement) -> isl.Map:
    """Pairs of instances with one of `other` in between that conflicts with both: a superset of those where it writes
    what both of them read."""
    found = conflicts(scop)

    def pairs(a: Statement, b: Statement) -> isl.Map:
        empty = isl.Map.empty(a.domain.get_space().map_from_domain_and_range(b.domain.get_space()))
        return found.ordered.get((a.name, b.name), empty).union(found.relaxed.get((a.name, b.name), empty))

    return pairs(first, other).apply_range(pairs(other, last))


def _same(a: Expr, b: Expr) -> list[tuple[Expr, Expr]] | None:
    """The subscripts that must be equal for the two expressions to have one value; None where they differ."""
    if isinstance(a, Var) and isinstance(b, Var):
        return [(a, b)]
    if isinstance(a, Load) and isinstance(b, Load):
        return list(zip(a.index, b.index)) if a.array == b.array else None
    kids, others = a.children(), b.children()
    if type(a) is not type(b) or len(kids) != len(others) or a.with_children(others) != b:
        return None
    found = [_same(x, y) for x, y in zip(kids, others)]
    return [p for part in found if part is not None for p in part] if None not in found else None


def _equal(scop: Scop, first: Statement, a: Expr, second: Statement, b: Expr) -> isl.Map:
    """`{ first[x] -> second[y] : a(x) = b(y) }`."""
    sides: Iterator[isl.Map] = (
        isl.Map.from_pw_aff(to_pw_aff(e, set_space(s.name, s.iters, scop.params))) for s, e in ((first, a), (second, b))
    )
    return next(sides).apply_range(next(sides).reverse())
