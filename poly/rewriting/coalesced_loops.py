"""Loops over all points of a box, counted by one iterator, as the loops of the box.

    for p in range(M * 8): Y[p // 8, p % 8] = f(p)    ->    for i in range(M): for j in range(8): Y[i, j] = f(8 * i + j)

The order stays the same. (The inverse of loop coalescing: Polychronopoulos, "Loop coalescing", ICPP 1987.) A loop is
taken for such a one where the digits of its iterator say more than the iterator: no subscript needs both afterwards,
flat arrays having their dimensions, and each is a subscript, or one is of what is written, or a condition needs them.
Where a packed array alone has the digits as subscripts, the loop stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from polyc.poly.certificates import expressions
from polyc.poly.expr import Cast, Const, Expr, Load, Var, loads, rewrite, variables, walk
from polyc.poly.forms.affine import terms_of
from polyc.poly.rewriting.changed_loops import iterators_of
from polyc.poly.rewriting.digits import Digits, counted_down, in_digits, is_division, terms
from polyc.poly.rewriting.flat_arrays import with_dimensions
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import loop_names


def with_loops_of_boxes(scop: Scop, marked: set[str]) -> Scop:
    """The program with a loop for each digit of loops that count the points of boxes; `marked` loops stay."""
    waiting = [n for n in loop_names(scop.tree) if n not in marked]
    while waiting:
        loop = waiting.pop()
        if loop not in loop_names(scop.tree):
            continue  # split along with an array
        iters = iterators_of(scop, loop, dynamic=True) or counted_down(scop, loop)
        width = None if iters is None else _width(scop, iters)
        found = None if width is None else in_digits(scop, loop, width)
        if iters is None or found is None:
            continue
        split, (high, low) = found
        digits = Digits("", width or 1, high, low)
        if _divided(scop, iters) or _tell_more(split, digits):
            split = with_dimensions(split, marked)
            if all(use != "whole" for _, use in _uses(split, digits)):
                scop = split
                waiting += [high, low]
    return scop


def _width(scop: Scop, iters: Mapping[str, str]) -> int | None:
    """The least number by which the loop's iterators are divided, in what statements compute or in their domains."""
    by = {
        int(x.b.value)
        for name, i in iters.items()
        for e in expressions(scop.statements[name])
        for x in walk(e)
        if is_division(x) and isinstance(x.b, Const) and _counts(x.a, i)
    }
    by |= {by_one for name, i in iters.items() for by_one in _divisors(scop.statements[name], i)}
    return min(by) if by and min(by) > 1 else None


def _counts(e: Expr, i: str) -> bool:
    """Whether an expression is the iterator, or a number less it."""
    found = [(f, x) for f, x in terms(e) if not isinstance(x, Const)]
    return found in ([(1, Var(i))], [(-1, Var(i))])


def _divisors(s: Statement, i: str) -> Iterator[int]:
    """By what the domain of a statement divides its iterator alone."""
    k, count = s.iters.index(i), len(s.iters)
    for part in s.domain.get_basic_sets():
        for d in range(part.dim(isl.dim_type.div)):
            quotient = part.get_div(d)
            if [x for x in range(count) if quotient.involves_dims(isl.dim_type.in_, x, 1)] == [k]:
                yield int(quotient.get_denominator_val().to_python())


def _divided(scop: Scop, iters: Mapping[str, str]) -> bool:
    """Whether the domain of a statement has remainders of the loop's iterator."""
    return any(True for name, i in iters.items() for _ in _divisors(scop.statements[name], i))


def _tell_more(scop: Scop, d: Digits) -> bool:
    """Whether both digits are subscripts without the other one, or one is of what is written; or one is at all, and
    none is the iterator itself."""
    uses = list(_uses(scop, d))
    alone = {use for _, use in uses if use in (d.high, d.low)}
    if len(alone) == 2 or any(use in (d.high, d.low) for written, use in uses if written):
        return True
    return len(alone) == 1 and "whole" not in [use for _, use in uses]


def _uses(scop: Scop, d: Digits) -> Iterator[tuple[bool, str]]:
    """For each subscript with digits whether it is of what is written, and the one digit that it has, or "both", or
    "whole" where it has the iterator that they make. Copies of scalars do not count."""
    for s in scop.statements.values():
        read = [(False, x) for whole in expressions(s) for x in loads(whole)]
        for written, load in [(True, s.target), *read]:
            for e in () if _is_copy(scop, load) else load.index:
                own = variables(rewrite(e, _without_load)) & {d.high, d.low}
                if len(own) == 1:
                    yield written, next(iter(own))
                elif own:
                    factors = None if any(isinstance(x, Cast) for x in walk(e)) else terms_of(e)
                    apart = factors is not None and factors[d.high] != d.width * factors[d.low]
                    yield written, "both" if apart else "whole"


def _without_load(e: Expr) -> Expr:
    """A number for a load: its subscripts are looked at by themselves."""
    return Const(0, e.dtype) if isinstance(e, Load) else e


def _is_copy(scop: Scop, load: Load) -> bool:
    """Whether an array holds a scalar's values, one for each iteration."""
    array = scop.arrays[load.array]
    return array.kind == "local" and 0 < array.expanded == len(array.shape)
