"""Linear normal form of index expressions: `c0 + sum(c_i * atom_i)` over i64.

Atoms are variables and whatever is not linear (`//`, `%`, `min`, `max`, loads, ...). Two index
expressions are equal when their forms are; their distance is constant when the difference
of the forms has no atoms. Index arithmetic never overflows (sizes are below 2**62).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Unary, Var, const_int, walk
from polyc.poly.records import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """`const + sum(coefficient * atom)`; `terms` keeps first-occurrence order, no zero coefficients."""

    terms: tuple[tuple[Expr, int], ...]
    const: int

    @property
    def is_const(self) -> bool:
        """Whether it has no atoms."""
        return not self.terms

    def coefficient(self, atom: Expr) -> int:
        """The factor of `atom` (0 when absent)."""
        return next((c for a, c in self.terms if a == atom), 0)

    def __add__(self, other: Linear) -> Linear:
        return _combine(self, other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return _combine(self, other, -1)

    def scale(self, factor: int) -> Linear:
        """Every coefficient times `factor`."""
        if factor == 0:
            return Linear((), 0)
        return Linear(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    def shift(self, amount: int) -> Linear:
        """Plus a constant."""
        return Linear(self.terms, self.const + amount)


def _combine(a: Linear, b: Linear, sign: int) -> Linear:
    if not b.terms:
        return Linear(a.terms, a.const + sign * b.const)
    if not a.terms and sign == 1:
        return Linear(b.terms, a.const + b.const)
    acc = dict(a.terms)
    for atom, c in b.terms:
        acc[atom] = acc.get(atom, 0) + sign * c
    return Linear(tuple((x, c) for x, c in acc.items() if c), a.const + sign * b.const)


def linear(expr: Expr) -> Linear:
    """The normal form of an i64 expression (its non-linear parts become atoms as they stand)."""
    if isinstance(expr, Var):
        return Linear(((expr, 1),), 0)
    form: Linear | None = getattr(expr, "_form", None)
    if form is not None:
        return form
    found = Linear((), int(expr.value)) if isinstance(expr, Const) else _sum(expr)
    if found is None:
        return Linear(((expr, 1),), 0)  # (not kept: it would hold the expression, which would hold it)
    object.__setattr__(expr, "_form", found)
    return found


def _sum(expr: Expr) -> Linear | None:
    """The form of a sum, difference or multiple; None for an atom."""
    if isinstance(expr, Unary) and expr.op == "neg":
        return linear(expr.a).scale(-1)
    if isinstance(expr, Binary):
        if expr.op == "+":
            return linear(expr.a) + linear(expr.b)
        if expr.op == "-":
            return linear(expr.a) - linear(expr.b)
        if expr.op == "*":
            a, b = linear(expr.a), linear(expr.b)
            if a.is_const:
                return b.scale(a.const)
            if b.is_const:
                return a.scale(b.const)
    return None


def rebuild(form: Linear) -> Expr:
    """The canonical expression of a form: positive terms first; the constant last, or first
    (`1000 - 16*i`) where no term is positive."""
    out: Expr | None = None
    if form.const > 0 and form.terms and all(c < 0 for _, c in form.terms):
        out, form = const_int(form.const), Linear(form.terms, 0)
    for atom, c in sorted(form.terms, key=lambda t: t[1] < 0):
        size = abs(c)
        term: Expr = atom if size == 1 else Binary("*", const_int(size), atom, i64)
        if out is None:
            out = term if c > 0 else (Unary("neg", atom, i64) if c == -1 else Binary("*", const_int(c), atom, i64))
        else:
            out = Binary("+" if c > 0 else "-", out, term, i64)
    if out is None:
        return const_int(form.const)
    if form.const:
        out = Binary("+" if form.const > 0 else "-", out, const_int(abs(form.const)), i64)
    return out


def difference(a: Expr, b: Expr) -> int | None:
    """`a - b` when it is a constant, else None."""
    d = linear(a) - linear(b)
    return d.const if d.is_const else None


def between(a: Sequence[Expr], b: Sequence[Expr]) -> set[str]:
    """The variables on which the distance of two elements depends."""
    return {v for x, y in zip(a, b) for atom, _ in (linear(x) - linear(y)).terms for v in variables(atom)}


def is_index(expr: Expr) -> bool:
    """An i64 expression over variables only: no loads, so no wrap-around to respect."""
    return expr.dtype == i64 and all(isinstance(e, (Var, Const, Unary, Binary)) and e.dtype == i64 for e in walk(expr))


def variables(expr: Expr) -> set[str]:
    """Names of all variables in an expression."""
    return {e.name for e in walk(expr) if isinstance(e, Var)}


def operands(expr: Expr, op: str) -> tuple[Expr, ...]:
    """The arguments of a nest of `min` (or `max`), flattened; a plain expression is its own."""
    if isinstance(expr, Binary) and expr.op == op:
        return (*operands(expr.a, op), *operands(expr.b, op))
    return (expr,)


DEEPEST = 8  # replacements of an atom by a bound, one after another
MOST_FORMS = 256  # that one question looks at
FEW_FORMS = 8  # before it asks whether there is anything to find

Interval = tuple[int | None, int | None]


def interval(form: Linear, ranges: Mapping[str, Interval]) -> Interval:
    """Constant bounds (inclusive; None = unbounded) of a form, given those of the variables."""
    lo: int | None = form.const
    hi: int | None = form.const
    for atom, c in form.terms:
        a, b = interval_of(atom, ranges)
        if c < 0:
            a, b = b, a
        lo = None if lo is None or a is None else lo + c * a
        hi = None if hi is None or b is None else hi + c * b
    return lo, hi


def interval_of(expr: Expr, ranges: Mapping[str, Interval]) -> Interval:
    """Constant bounds of an index expression."""
    if isinstance(expr, Const):
        return int(expr.value), int(expr.value)
    if isinstance(expr, Var):
        return ranges.get(expr.name, (None, None))
    if isinstance(expr, Binary) and expr.op in ("min", "max"):
        return _min_max(expr.op, interval_of(expr.a, ranges), interval_of(expr.b, ranges))
    if isinstance(expr, Binary) and isinstance(expr.b, Const) and expr.op in ("//", "%") and expr.b.value > 0:
        if expr.op == "%":
            return 0, expr.b.value - 1
        a, b = interval_of(expr.a, ranges)
        return (None if a is None else a // expr.b.value), (None if b is None else b // expr.b.value)
    form = linear(expr)
    if form.terms == ((expr, 1),):
        return None, None
    return interval(form, ranges)


def _min_max(op: str, a: Interval, b: Interval) -> Interval:
    known = [[x for x in pair if x is not None] for pair in zip(a, b)]
    both = [len(k) == 2 for k in known]
    if op == "min":
        return (min(known[0]) if both[0] else None), (min(known[1]) if known[1] else None)
    return (max(known[0]) if known[0] else None), (max(known[1]) if both[1] else None)


def nonnegative(form: Linear, bounds: Mapping[str, tuple[Expr, Expr]]) -> bool:
    """Whether `form >= 0` wherever the loops run; `bounds` maps variables to `[lo, hi)`.

    Sizes (variables without bounds) are only known to be non-negative. Atoms are replaced by their bounds, one after
    another in any order; no more than `MOST_FORMS` forms are tried, and what is not found among them is not known.
    Most of what can be found is found among the first few; points of the loops refuse most of the rest.
    """
    return _plainly(form, bounds) or _searched(form, tuple(bounds.items()))


@lru_cache(maxsize=4096)  # the lanes of a statement, and its copies, ask the same again
def _searched(form: Linear, known: tuple[tuple[str, tuple[Expr, Expr]], ...]) -> bool:
    bounds = dict(known)
    failed: dict[Any, int] = {}
    if _nonnegative(form, bounds, DEEPEST, failed, FEW_FORMS):
        return True
    if len(failed) < FEW_FORMS:
        return False
    from polyc.emit.loop_ir.points import negative_somewhere

    if negative_somewhere(form.terms, form.const, known):
        return False
    return _nonnegative(form, bounds, DEEPEST, {}, MOST_FORMS)


def _plainly(form: Linear, bounds: Mapping[str, tuple[Expr, Expr]]) -> bool:
    """A sum of sizes."""
    return form.const >= 0 and all([c >= 0 and isinstance(a, Var) and a.name not in bounds for a, c in form.terms])


def _nonnegative(
    form: Linear, bounds: Mapping[str, tuple[Expr, Expr]], depth: int, failed: dict[Any, int], most: int
) -> bool:
    """`failed`: forms that came to nothing, and with how many replacements left (other orders lead to them again);
    no more than `most`."""
    if _plainly(form, bounds):
        return True
    key = frozenset(form.terms), form.const
    if depth <= failed.get(key, 0) or len(failed) >= most:
        return False
    failed[key] = depth
    for atom, c in _innermost_first(form, bounds):
        rest = Linear(tuple(t for t in form.terms if t[0] != atom), form.const)
        choices = [[rest + low for low in cases] for cases in _least(atom, c, bounds)]
        choices.sort(key=lambda cases: max(len(x.terms) for x in cases))  # what cancels is likely meant for it
        if any(all(_nonnegative(x, bounds, depth - 1, failed, most) for x in cases) for cases in choices):
            return True
    return False


def _innermost_first(form: Linear, bounds: Mapping[str, tuple[Expr, Expr]]) -> list[tuple[Expr, int]]:
    """The terms in the order in which replacing them is most likely to lead to the end: quotients and the like, which
    may leave nothing of the variable that they are of; then variables, whose bounds are in those of loops around."""
    place = {name: k for k, name in enumerate(bounds)}

    def rank(term: tuple[Expr, int]) -> int:
        return -place.get(term[0].name, 0) if isinstance(term[0], Var) else -len(place)

    return sorted(form.terms, key=rank)


def _least(atom: Expr, c: int, bounds: Mapping[str, tuple[Expr, Expr]]) -> list[list[Linear]]:
    """Lower bounds of `c * atom`: one of the lists suffices, and of it all forms are needed."""
    if isinstance(atom, Var) and atom.name in bounds:
        lo, hi = bounds[atom.name]
        if c > 0:
            return _least_of(lo, c, "max")
        return [[low.shift(-c) for low in cases] for cases in _least_of(hi, c, "min")]
    if isinstance(atom, Binary) and atom.op in ("min", "max"):
        return _least_of(atom, c, "max" if c > 0 else "min")
    if isinstance(atom, Binary) and atom.op == "//" and isinstance(atom.b, Const) and atom.b.value > 0:
        d = int(atom.b.value)
        if c % d == 0:  # c * (x // d) lies between (c / d) * (x - d + 1) and (c / d) * x
            return [[linear(atom.a).shift(1 - d if c > 0 else 0).scale(c // d)]]
    return []


def _least_of(e: Expr, c: int, any_of: str) -> list[list[Linear]]:
    """For `c * e`: of a `min` or `max` either any argument will do (`any_of`), or all must."""
    parts = operands(e, any_of)
    if len(parts) > 1:
        return [[linear(p).scale(c)] for p in parts]
    parts = operands(e, "min" if any_of == "max" else "max")
    return [[linear(p).scale(c) for p in parts]]
