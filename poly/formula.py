"""Counts as formulas in the sizes: piecewise quasi-polynomials that print, add, multiply and evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import islpy as isl

from poly.canonical import set_text
from poly.errors import ArgumentError, PolycError
from poly.polynomial import Atom, Extreme, Polynomial, affine_terms, rewritten

MANY = 48
"""Pieces after which a formula is given up: nobody could read it."""

FEW = 8  # values of one size that are tried one by one when two pieces are compared


class CountingError(PolycError):
    """A set that is infinite, or too hard to count within the quota."""


class InfiniteError(CountingError):
    """A set without end."""


MOST_POINTS = 200_000


@dataclass(frozen=True, eq=False)
class Piece:
    """`value` where the sizes are in `where` (a parameter set)."""

    where: isl.Set
    value: Polynomial


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
        """The sum of pieces that may overlap."""
        pieces: list[Piece] = []
        for new in parts:
            pieces = _added(pieces, new)
            if len(pieces) > MANY:
                raise CountingError(f"not counted exactly: the formula would have more than {MANY} cases")
        return Formula(_merged(pieces, context), tuple(names), context)

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
            pieces = _added(pieces, piece)
        return replace(a, pieces=_merged(pieces, a.context), **_honest(a, b))

    def __mul__(self, other: Formula | int) -> Formula:
        if isinstance(other, int):
            pieces = tuple(Piece(p.where, p.value.scale(other)) for p in self.pieces) if other else ()
            return replace(self, pieces=pieces)
        a, b = _aligned(self, other)
        product = [Piece(p.where.intersect(q.where), p.value * q.value) for p in a.pieces for q in b.pieces]
        return replace(a, pieces=_merged(product, a.context), **_honest(a, b))

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
            raise ArgumentError(f"the formula is not meant for {given}: it needs {_condition(self.context)}")
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
        conditions = [_condition(p.where.gist(self.context)) for p in self.pieces]
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
        pieces = [{"value": str(p.value), "where": _condition(p.where.gist(self.context))} for p in self.pieces]
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


def _added(pieces: list[Piece], new: Piece) -> list[Piece]:
    """Disjoint pieces plus one more."""
    out: list[Piece] = []
    rest = new.where
    for p in pieces:
        if rest.is_empty():
            out.append(p)
            continue
        both = p.where.intersect(rest)
        if both.is_empty():
            out.append(p)
            continue
        only = p.where.subtract(rest).coalesce()
        if not only.is_empty():
            out.append(Piece(only, p.value))
        out.append(Piece(both.coalesce(), p.value + new.value))
        rest = rest.subtract(p.where).coalesce()
    if not rest.is_empty():
        out.append(Piece(rest, new.value))
    return out


def _merged(pieces: Iterable[Piece], context: isl.Set) -> tuple[Piece, ...]:
    """As few pieces as easily seen: those whose formula holds on another one's region swallow it."""
    left = [Piece(p.where.intersect(context).coalesce(), p.value) for p in pieces]
    left = [p for p in left if not p.where.is_empty()]
    rest = context
    for p in left:
        rest = rest.subtract(p.where)
    zero = [Piece(isl.Set.from_basic_set(b), Polynomial()) for b in rest.coalesce().get_basic_sets()]
    left = [Piece(isl.Set.from_basic_set(b), p.value) for p in left for b in p.where.get_basic_sets()] + zero
    samples = [_sample(p.where) for p in left]
    k = 0
    while k < len(left):
        p = left[k]
        for j, q in enumerate(left):
            if j == k or p.value(samples[j]) != q.value(samples[j]) or not agree(p.value, q.value, q.where):
                continue
            left[k] = Piece(p.where.union(q.where).coalesce(), p.value)
            del left[j], samples[j]
            k -= j < k
            break
        else:
            k += 1
    left = _as_extreme(left, context)
    left = [p for p in left if p.value]
    return tuple(sorted(left, key=lambda p: (-len(p.value.sizes()), -len(p.value.terms), str(p.value))))


def _as_extreme(pieces: list[Piece], context: isl.Set) -> list[Piece]:
    """Affine cases of which each is the smallest (or largest) where it holds become one `min` (`max`)."""
    forms = [affine_terms(p.value) for p in pieces]
    known = [f for f in forms if f is not None]
    if not 2 <= len(pieces) <= 3 or len(known) < len(pieces) or ((), 0) in known:
        return pieces  # `max(0, x)` would hide that sums and products simplify where it is not 0
    if any(not isinstance(a, str) for terms, _ in known for a, _ in terms):
        return pieces
    space = context.get_space()
    values = [_affine(terms, constant, space) for terms, constant in known]
    for which in ("min", "max"):
        ahead = [
            (v.le_set(w) if which == "min" else v.ge_set(w)).params()
            for v in values for w in values if w is not v
        ]  # fmt: skip
        others = len(values) - 1
        if all(p.where.is_subset(s) for k, p in enumerate(pieces) for s in ahead[k * others : (k + 1) * others]):
            constants_last = sorted(known, key=lambda f: (bool(f[0]), str(f)))
            atom = Extreme(which, tuple(constants_last))
            return [Piece(context, Polynomial.atom(atom))]
    return pieces


def _affine(terms: Sequence[tuple[Atom, int]], constant: int, space: isl.Space) -> isl.PwAff:
    """The affine expression as an isl function of the parameters alone."""
    local = isl.LocalSpace.from_space(space)
    out = isl.Aff.zero_on_domain(local).set_constant_val(isl.Val(constant))
    for name, c in terms:
        out = out.set_coefficient_val(
            isl.dim_type.param, space.find_dim_by_name(isl.dim_type.param, str(name)), isl.Val(c)
        )
    return isl.PwAff.from_aff(out)


def agree(a: Polynomial, b: Polynomial, where: isl.Set, depth: int = 0) -> bool:
    """Whether two polynomials are seen to be equal for all sizes in `where`."""
    if a == b:
        return True
    if depth > 4:
        return False
    count = where.dim(isl.dim_type.param)
    as_set = isl.Set.from_params(where).move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count)
    names = [where.get_dim_name(isl.dim_type.param, k) for k in range(count)]
    involved = a.sizes() | b.sizes()
    for k, name in enumerate(names):
        if name not in involved:
            continue
        low, high = as_set.dim_min_val(k), as_set.dim_max_val(k)
        if not (low.is_int() and high.is_int()) or (high.sub(low)).to_python() >= FEW:
            continue
        if len(involved) == 1:
            values = range(int(low.to_python()), int(high.to_python()) + 1)
            return all(a({name: v}) == b({name: v}) for v in values)
        for value in range(int(low.to_python()), int(high.to_python()) + 1):
            part = where.fix_val(isl.dim_type.param, k, isl.Val(value))
            if not part.is_empty() and not agree(_fixed(a, name, value), _fixed(b, name, value), part, depth + 1):
                return False
        return True
    return _agree_by_equality(a, b, where, names, depth)


def _sample(where: isl.Set) -> dict[str, int]:
    """Some values in a region that is not empty."""
    count = where.dim(isl.dim_type.param)
    point = isl.Set.from_params(where).move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count).sample_point()
    return {
        where.get_dim_name(isl.dim_type.param, k): int(point.get_coordinate_val(isl.dim_type.set, k).to_python())
        for k in range(count)
    }


def _agree_by_equality(a: Polynomial, b: Polynomial, where: isl.Set, names: list[str], depth: int) -> bool:
    """Use an equality `size == affine` that holds in `where`."""
    for c in where.affine_hull().get_constraints():
        if not c.is_equality() or c.dim(isl.dim_type.div):
            continue
        row = {n: int(c.get_coefficient_val(isl.dim_type.param, k).to_python()) for k, n in enumerate(names)}
        constant = int(c.get_constant_val().to_python())
        unit = next((n for n, v in row.items() if abs(v) == 1 and n in a.sizes() | b.sizes()), None)
        if unit is None:
            continue
        sign = -row[unit]
        terms = {n: v * sign for n, v in row.items() if v and n != unit}
        value = Polynomial.affine(dict(terms), constant * sign)
        return _put(a, unit, value) == _put(b, unit, value)
    return False


def _fixed(p: Polynomial, name: str, value: int) -> Polynomial:
    return _put(p, name, Polynomial.constant(value))


def _put(p: Polynomial, name: str, value: Polynomial) -> Polynomial:
    """An affine value in place of a size, inside floors too."""
    return rewritten(p, lambda size: value if size == name else Polynomial.atom(size))


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


def _condition(where: isl.Set) -> str:
    """`M > 0 and N >= 3`, "" for everything."""
    if where.plain_is_universe():
        return ""
    text = set_text(where.coalesce())
    return text[text.index("{") + 1 : text.rindex("}")].strip().removeprefix(":").strip()
