"""Conditions on a loop's iterator as its bounds: what they leave out is not looked at.

    for p in range(Z): if ptr[i] <= p and p < ptr[i + 1]: S      ->  for p in range(ptr[i], ptr[i + 1]): S
    for p in range(ptr[i + 1]): if not p < ptr[i]: S             ->  for p in range(ptr[i], ptr[i + 1]): S

The values that the iterator is compared with do not change in the loop, and can be read before it whatever the
conditions say: no access that only a condition keeps inside its array goes before it. Loops that data bound at one end
only stay as they are: vector lanes under a mask walk through them well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import islpy as isl

from polyc.poly.certificates import all_of, open_axes, type_range, value_range
from polyc.poly.dtypes import bool_, i64, u64
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Unary, const_int, loads, variables
from polyc.poly.expr import walk as walk_expr
from polyc.poly.forms.affine import terms_of
from polyc.poly.forms.ranges import smallest
from polyc.poly.reduction import with_reduction
from polyc.poly.scop import DYNAMIC_EXTENT, ENDLESS, DynamicBound, Scop, Statement
from polyc.poly.tree import loop_dim, loops_around, loops_below

Range = tuple[tuple[Expr, ...], tuple[Expr, ...]]
"""What an iterator is at least, and what it is below."""

FAR = 2**61
"""Beyond all iterators."""

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def with_bounds(scop: Scop, marked: set[str]) -> Scop:
    """The program with such conditions as bounds; the Scop itself where there is none."""
    if all(s.predicate is None for s in scop.statements.values()):
        return scop
    for member in loops_below(scop.tree):
        if member.name in marked:
            continue
        bounded = {name: _bounded(scop, name, member.name, set(member.schedule)) for name in member.schedule}
        if bounded and all(s is not None for s in bounded.values()):
            scop = replace(scop, statements={n: bounded.get(n) or s for n, s in scop.statements.items()})
    return scop


def _bounded(scop: Scop, name: str, loop: str, inside: set[str]) -> Statement | None:
    """A statement with its conditions on the iterator of a loop as bounds of it; None where there are none, or data
    bound one end only."""
    s = scop.statements[name]
    around = loops_around(scop.tree, name)
    own = {m.name: _iterator(s, m.schedule[name]) for m in around}
    i = own[loop]
    if i is None or s.predicate is None:
        return None
    outer: set[str | None] = set()
    for m in around:
        if m.name == loop:
            break
        outer.add(own[m.name])
    written = {scop.statements[n].array for n in inside}
    known = {x for x in outer if x is not None and s.iters.index(x) < s.iters.index(i)} | set(scop.params)
    kept, lows, highs = [], list[Expr](), list[Expr]()
    safe = True
    for condition in conjuncts(s.predicate):
        found = bound_of(widened(condition, s.domain), i) if safe else None
        if found is None or not all(read_before(scop, s, i, e, known, written) for e in found[0] + found[1]):
            kept.append(condition)
            safe = safe and not any(open_axes(scop, s, load, s.domain) for load in loads(condition))
            continue  # (an error in a condition is not to be lost by one that is looked at after it)
        lows += found[0]
        highs += found[1]
    old = next((d for d in s.dynamic if d.iter == i), None)
    by_data = [any(True for e in side for _ in loads(e)) for side in (lows, highs)]
    if not any(by_data) or (old is not None and old.hi == const_int(ENDLESS)):
        return None
    if old is not None:
        by_data = [new or next(loads(e), None) is not None for new, e in zip(by_data, (old.lo, old.hi), strict=True)]
    if not all(by_data):
        return None
    return with_bound(scop, s, i, (tuple(lows), tuple(highs)), kept)


def with_bound(scop: Scop, s: Statement, i: str, found: Range, kept: list[Expr]) -> Statement:
    """The statement with bounds instead of its conditions, of which `kept` are left."""
    bounds = {d.iter: d for d in s.dynamic}
    lows, highs = found
    if i in bounds:
        lows, highs = (bounds[i].lo, *lows), (bounds[i].hi, *highs)
    least = None if lows else smallest(s.domain, s.iters.index(i))
    lows = lows or (const_int(-DYNAMIC_EXTENT if least is None else least),)
    lo, hi = reduce(lambda a, b: _either("max", a, b), lows), reduce(lambda a, b: _either("min", a, b), highs)
    bounds[i] = DynamicBound(i, lo, hi)
    dynamic = tuple(bounds[x] for x in s.iters if x in bounds)
    predicate = all_of(*kept) if kept else None
    return with_reduction(replace(s, predicate=predicate, dynamic=dynamic), scop.reassociate)


def _either(op: str, a: Expr, b: Expr) -> Expr:
    return a if a == b else Binary(op, a, b, i64)


def _iterator(s: Statement, time: isl.PwAff) -> str | None:
    """The iterator that a loop follows."""
    return next((i for k, i in enumerate(s.iters) if time.plain_is_equal(loop_dim(s.domain, k))), None)


def conjuncts(e: Expr, holds: bool = True) -> Iterator[Expr]:
    """Conditions that hold together just where `e` does (or does not), in the order in which they are looked at."""
    if isinstance(e, Unary) and e.op == "not":
        yield from conjuncts(e.a, not holds)
    elif isinstance(e, Binary) and e.op == ("and" if holds else "or"):
        yield from conjuncts(e.a, holds)
        yield from conjuncts(e.b, holds)
    elif holds:
        yield e
    elif isinstance(e, Binary) and e.op in _OPPOSITE and e.a.dtype.is_int:
        yield replace(e, op=_OPPOSITE[e.op])
    else:
        yield Unary("not", e, bool_)


def bound_of(condition: Expr, i: str) -> Range | None:
    """What a comparison of an iterator with something else says about it."""
    if not isinstance(condition, Binary) or condition.op not in _TURNED or condition.a.dtype != i64:
        return None
    op, a, b = condition.op, condition.a, condition.b
    if i in variables(b):
        op, a, b = _TURNED[op], b, a
    by = _offset(a, i)
    if by is None or i in variables(b):
        return None
    by = -by + (op in ("<=", ">"))
    value = _plus(b, by)
    return ((value,), ()) if op in (">", ">=") else ((), (value,))


def widened(condition: Expr, domain: isl.Set) -> Expr:
    """A comparison of integers as one of numbers in i64."""
    if not isinstance(condition, Binary) or condition.op not in _TURNED or not condition.a.dtype.is_int:
        return condition
    kind = condition.a.dtype
    return (
        condition
        if kind in (i64, u64)
        else replace(condition, a=_wide(condition.a, domain), b=_wide(condition.b, domain))
    )


def _wide(e: Expr, domain: isl.Set) -> Expr:
    if isinstance(e, Cast) and e.a.dtype == i64 and next(loads(e), None) is None:
        (low, high), (least, most) = value_range(e.a, domain), type_range(e.dtype)
        if None not in (low, high, least, most) and least <= low and high <= most:  # type: ignore[operator]
            return e.a
    return const_int(int(e.value)) if isinstance(e, Const) else Cast(e, i64)


def _offset(e: Expr, i: str) -> int | None:
    """`c` of `i + c`."""
    terms = None if any(isinstance(x, Cast) for x in walk_expr(e)) else terms_of(e)
    by = None if terms is None else terms.pop("", 0)
    return by if terms == {i: 1} and by is not None and abs(by) < FAR else None


def _plus(e: Expr, by: int) -> Expr:
    """`e + by`, where an end of all numbers stays far from any iterator."""
    if not by:
        return e
    if isinstance(e, Const):
        return const_int(int(e.value) + by)
    if any(isinstance(x, Load) and x.dtype.bits > 32 for x in walk_expr(e)):
        e = Binary("max", Binary("min", e, const_int(FAR), i64), const_int(-FAR), i64)
    return Binary("+" if by > 0 else "-", e, const_int(abs(by)), i64)


def read_before(scop: Scop, s: Statement, i: str, e: Expr, known: set[str], written: set[str]) -> bool:
    """Whether a value can be computed before the loop over `i`, is the same in all of it, and no error is in it."""
    if not variables(e) <= known or any(load.array in written for load in loads(e)):
        return False
    return not any(isinstance(x, Binary) and x.op in ("//", "%") for x in walk_expr(e)) and not any(
        open_axes(scop, s, load, _entered(s, i)) for load in loads(e)
    )


def _entered(s: Statement, i: str) -> isl.Set:
    """All iterations of the loops around the one over `i`, also those without one of its own."""
    first = s.iters.index(i)
    rest = len(s.iters) - first
    found = isl.Set.empty(s.domain.get_space())
    for part in s.domain.get_basic_sets():
        found = found.union(isl.Set.from_basic_set(part.drop_constraints_involving_dims(isl.dim_type.set, first, rest)))
    return found
