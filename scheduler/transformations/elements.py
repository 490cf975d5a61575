"""On which elements the value of an expression depends: the sums of loops that stand in it, not the loops themselves.

X[c, y + a] if y + a < N else 0   depends on c and y + a: one value for many iterations of y and a
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from polyc.poly.binding import linear_form
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Var, const_int, substitute, variables, walk
from polyc.scheduler.transformations.added import unique

Sum = tuple[tuple[str, Fraction], ...]


def sums(expressions: Iterable[Expr], loops: Sequence[str]) -> dict[str, Expr] | None:
    """The sums of loops that expressions depend on, by a name for each, in the order of the loops; None where they are
    no fewer than the loops, or something depends on a loop in another way."""
    found: dict[Sum, None] = {}
    for e in expressions:
        if not _collect(e, frozenset(loops), found):
            return None
    if len(found) >= len(loops):
        return None
    order = sorted(found, key=lambda form: min(loops.index(name) for name, _ in form))
    names = unique(["_".join(name for name, _ in form) for form in order], frozenset())
    return dict(zip(names, map(_expr, order), strict=True))


def _collect(e: Expr, loops: frozenset[str], found: dict[Sum, None]) -> bool:
    """Add the sums in an expression; False where a loop stands elsewhere."""
    if not variables(e) & loops:
        return True
    form = _form(e, loops)
    if form is not None:
        found[_upwards(form)] = None
        return True
    return bool(e.children()) and all(_collect(c, loops, found) for c in e.children())


def _form(e: Expr, loops: frozenset[str]) -> Sum | None:
    """The part of a sum that loops move, where nothing else does and it is a sum of whole multiples of them, none of
    which a narrower type may have cut."""
    whole = e.dtype == i64 and not any(isinstance(x, Cast) for x in walk(e))
    linear = linear_form(e) if whole else None
    if linear is None or set(linear[0]) - loops or any(c.denominator != 1 for c in linear[0].values()):
        return None
    return tuple(sorted(linear[0].items()))


def _upwards(form: Sum) -> Sum:
    """The sum or its negative, whose first factor is positive: an expression depends on both or on none."""
    return form if not form or form[0][1] > 0 else tuple((name, -factor) for name, factor in form)


def _expr(form: Sum) -> Expr:
    total: Expr | None = None
    for name, factor in form:
        term: Expr = Var(name)
        if factor != 1:
            term = Binary("*", const_int(int(factor)), term, i64)
        total = term if total is None else Binary("+", total, term, i64)
    assert total is not None
    return total


def rewritten(e: Expr, subscripts: Mapping[str, Expr], own: Mapping[str, Expr]) -> Expr:
    """An expression of the subscripts (those of `sums`, or loops) with what `own` has for each in its place."""
    if all(isinstance(x, Var) for x in subscripts.values()):
        return substitute(e, own)
    loops = frozenset(n for x in subscripts.values() for n in variables(x))
    places = {_upwards(form): own[name] for name, x in subscripts.items() if (form := _form(x, loops)) is not None}

    def moved(e: Expr) -> Expr:
        if not variables(e) & loops:
            return e
        form = _form(e, loops)
        if form is None:
            return e.with_children(tuple(map(moved, e.children())))
        linear = linear_form(e)
        assert linear is not None
        place = places[_upwards(form)]
        if _upwards(form) == form:
            return _plus(place, int(linear[1]))
        return Binary("-", const_int(int(linear[1])), place, i64)

    return moved(e)


def _plus(e: Expr, by: int) -> Expr:
    if isinstance(e, Const):
        return const_int(int(e.value) + by)
    return e if by == 0 else Binary("+", e, const_int(by), i64)
