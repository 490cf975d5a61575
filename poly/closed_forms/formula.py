"""Counts as formulas in the sizes: piecewise quasi-polynomials that print, add, multiply and evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

import islpy as isl

from polyc.poly.closed_forms.pieces import MANY, CountingError, Piece, added, merged
from polyc.poly.closed_forms.polynomial import Polynomial
from polyc.poly.errors import ArgumentError
from polyc.poly.forms.canonical import set_text
from polyc.poly.records import dataclass

MOST_POINTS = 200_000


@dataclass(frozen=True, eq=False)
class Formula:
    """A number that depends on sizes. Outside all (disjoint) `pieces` it is 0.

    `formula(M=3, N=4)` evaluates; `str` gives text such as `2*M*N*K`, in Python's syntax where there is
    one piece. `exact` is False when the number is an upper bound; `why` then says why.
    `context` holds the sizes that matter.
    """

    pieces: tuple[Piece, ...]
    names: tuple[str, ...]
    context: isl.Set
    exact: bool = True
    why: str = field(default="", compare=False)

    @staticmethod
    def sum_of(parts: Iterable[Piece], names: Sequence[str], context: isl.Set) -> Formula:
        """The sum of pieces that may overlap. Raises `CountingError`: the formula would have more than `MANY` cases."""
        pieces: list[Piece] = []
        for new in parts:
            pieces = added(pieces, new)
            if len(pieces) > MANY:
                raise CountingError(f"not counted exactly: the formula would have more than {MANY} cases")
        return Formula(merged(pieces, context), tuple(names), context)

    @staticmethod
    def total(parts: Sequence[Formula]) -> Formula:
        """The sum of one or more formulas in the same sizes: equal cases are looked for once, at the end."""
        exact, why = all(f.exact for f in parts), next((f.why for f in parts if f.why), "")
        pieces: list[Piece] = []
        for f in parts:
            for piece in f.pieces:
                pieces = added(pieces, piece)
        first = parts[0]
        return Formula(merged(pieces, first.context), first.names, first.context, exact, why)

    @staticmethod
    def constant(value: int, names: Sequence[str], context: isl.Set) -> Formula:
        """The same number for all sizes."""
        piece = Piece(isl.Set.universe(context.get_space()), Polynomial.constant(value))
        return Formula((piece,) if value else (), tuple(names), context)

    def bounded(self, why: str) -> Formula:
        """The same, marked as an upper bound."""
        return replace(self, exact=False, why=why)

    def __add__(self, other: Formula) -> Formula:
        a, b = _aligned(self, other)
        pieces = list(a.pieces)
        for piece in b.pieces:
            pieces = added(pieces, piece)
        return replace(a, pieces=merged(pieces, a.context), **_honest(a, b))

    def __mul__(self, other: Formula | int) -> Formula:
        if isinstance(other, int):
            pieces = tuple(Piece(p.where, p.value.scale(other)) for p in self.pieces) if other else ()
            return replace(self, pieces=pieces)
        a, b = _aligned(self, other)
        product = [Piece(p.where.intersect(q.where), p.value * q.value) for p in a.pieces for q in b.pieces]
        return replace(a, pieces=merged(product, a.context), **_honest(a, b))

    __rmul__ = __mul__

    def __truediv__(self, other: Formula) -> Ratio:
        return Ratio(*_aligned(self, other))

    def __call__(self, sizes: Mapping[str, int] | None = None, /, **more: int) -> int:
        """The number for these sizes (as a mapping, or as keywords; a loop `i.out` may be written `i_out`).

        Raises:
            ArgumentError: a size is missing, unknown or outside the context.
        """
        values = self._values({**(sizes or {}), **more})
        if not _holds(self.context, values):
            given = ", ".join(f"{n}={v}" for n, v in values.items())
            raise ArgumentError(f"the formula is not meant for {given}: it needs {condition_text(self.context)}")
        for piece in self.pieces:
            if _holds(piece.where, values):
                result = piece.value(values)
                assert result.denominator == 1
                return int(result)
        return 0

    def largest(self, sizes: Mapping[str, int] | None = None, /, **more: int) -> int:
        """The largest value for these sizes over all values of the others (loops) that the context has.

        Raises:
            ArgumentError: a size is unknown, or there are infinitely (or far too) many values.
        """
        fixed = self._named({**(sizes or {}), **more})
        best = 0
        for piece in self.pieces:
            where = piece.where.intersect(self.context)
            for name, value in fixed.items():
                where = where.fix_val(isl.dim_type.param, where.find_dim_by_name(isl.dim_type.param, name), value)
            for values in _points(where, self.names, piece.value.sizes()):
                best = max(best, int(piece.value({**fixed, **values})))
        return best

    def _named(self, given: Mapping[str, int]) -> dict[str, int]:
        values: dict[str, int] = {}
        for name, value in given.items():
            known = name if name in self.names else next((n for n in self.names if n.replace(".", "_") == name), None)
            if known is None:
                raise ArgumentError(f"the formula has no size '{name}' (it has {', '.join(self.names) or 'none'})")
            values[known] = int(value)
        return values

    def _values(self, given: Mapping[str, int]) -> dict[str, int]:
        values = self._named(given)
        missing = [n for n in self.names if n not in values]
        if missing:
            raise ArgumentError(f"the formula needs a value for {', '.join(missing)}")
        return {n: values[n] for n in self.names}

    def __str__(self) -> str:
        about = "" if self.exact else "at most "
        if not self.pieces:
            return about + "0"
        conditions = [condition_text(p.where.gist(self.context)) for p in self.pieces]
        if len(self.pieces) == 1 and not conditions[0]:
            return about + str(self.pieces[0].value)
        parts = [f"{p.value} if {c}" if c else str(p.value) for p, c in zip(self.pieces, conditions)]
        return about + "; ".join([*parts, "0 otherwise"] if not self._everywhere() else parts)

    def _everywhere(self) -> bool:
        rest = self.context
        for p in self.pieces:
            rest = rest.subtract(p.where)
        return bool(rest.is_empty())

    def __repr__(self) -> str:
        return f"<formula {self}>"

    def data(self) -> dict[str, Any]:
        """For JSON: text, sizes, pieces and whether it is exact."""
        pieces = [{"value": str(p.value), "where": condition_text(p.where.gist(self.context))} for p in self.pieces]
        return {"text": str(self), "sizes": list(self.names), "pieces": pieces, "exact": self.exact, "why": self.why}


@dataclass(frozen=True, eq=False)
class Ratio:
    """One formula over another, such as flops per byte."""

    over: Formula
    under: Formula

    def __call__(self, sizes: Mapping[str, int] | None = None, /, **more: int) -> float:
        """The value for these sizes; `nan` for 0 / 0, `inf` where only the lower one is 0."""
        a, b = self.over(sizes, **more), self.under(sizes, **more)
        if b == 0:
            return float("nan") if a == 0 else float("inf")
        return float(Fraction(a, b))

    @property
    def exact(self) -> bool:
        """Whether both formulas are."""
        return self.over.exact and self.under.exact

    def __str__(self) -> str:
        if len(self.over.pieces) == len(self.under.pieces) == 1 and self.exact:
            shared = _cancelled(self.over.pieces[0].value, self.under.pieces[0].value)
            if str(shared[1]) == "1":
                return str(shared[0])
            return " / ".join(_bracketed(str(p)) for p in shared)
        return f"({self.over}) / ({self.under})"


def _cancelled(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Both without the factors that all their terms share."""
    from math import gcd, lcm

    terms = [*a.terms, *b.terms]
    if not a.terms or not b.terms:
        return a, b
    powers = dict(terms[0])
    for m in terms[1:]:
        other = dict(m)
        powers = {x: min(k, other[x]) for x, k in powers.items() if x in other}
    numbers = [*a.terms.values(), *b.terms.values()]
    unit = lcm(*(c.denominator for c in numbers))
    factor = Fraction(unit, gcd(*(int(c * unit) for c in numbers)))

    def less(p: Polynomial) -> Polynomial:
        return Polynomial({
            tuple((x, k - powers.get(x, 0)) for x, k in m if k != powers.get(x, 0)): c * factor
            for m, c in p.terms.items()
        })  # fmt: skip

    return less(a), less(b)


def _bracketed(text: str) -> str:
    return text if text.replace("*", "").isalnum() else f"({text})"


def _honest(a: Formula, b: Formula) -> dict[str, Any]:
    return {"exact": a.exact and b.exact, "why": a.why or b.why}


def _aligned(a: Formula, b: Formula) -> tuple[Formula, Formula]:
    """Both over the same sizes."""
    if a.names == b.names:
        return a, b
    names = tuple(dict.fromkeys((*a.names, *b.names)))
    model = a.context.align_params(b.context.get_space())
    space = model.get_space()
    context = model.intersect(b.context.align_params(space))

    def widened(f: Formula) -> Formula:
        pieces = tuple(Piece(p.where.align_params(space), p.value) for p in f.pieces)
        return replace(f, pieces=pieces, names=names, context=context)

    return widened(a), widened(b)


def _points(where: isl.Set, names: Sequence[str], used: set[str]) -> list[dict[str, int]]:
    """All values in `where` of the sizes in `used`."""
    count = where.dim(isl.dim_type.param)
    as_set = isl.Set.from_params(where).move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count)
    for k in reversed(range(count)):
        if where.get_dim_name(isl.dim_type.param, k) not in used:
            as_set = as_set.project_out(isl.dim_type.set, k, 1)
    left = [where.get_dim_name(isl.dim_type.param, k) for k in range(count)]
    left = [n for n in left if n in used]
    if not as_set.is_bounded():
        raise ArgumentError(f"the largest value needs all sizes (of {', '.join(names)}) except loops")
    if int(as_set.count_val().to_python()) > MOST_POINTS:
        raise ArgumentError(f"more than {MOST_POINTS} values to compare: use smaller sizes")
    found: list[dict[str, int]] = []

    def take(p: isl.Point) -> None:
        found.append({n: int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k, n in enumerate(left)})

    as_set.foreach_point(take)
    return found


def _holds(where: isl.Set, values: Mapping[str, int]) -> bool:
    for k in range(where.dim(isl.dim_type.param)):
        where = where.fix_val(isl.dim_type.param, k, isl.Val(values[where.get_dim_name(isl.dim_type.param, k)]))
    return not where.is_empty()


def condition_text(where: isl.Set) -> str:
    """`M > 0 and N >= 3`, "" for everything."""
    if where.plain_is_universe():
        return ""
    text = set_text(where.coalesce())
    return text[text.index("{") + 1 : text.rindex("}")].strip().removeprefix(":").strip()
