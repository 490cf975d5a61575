"""Quasi-polynomials: polynomials with rational coefficients in sizes, floors, minima and maxima.

The arithmetic of symbolic counting (`polyc.poly.closed_forms.counting`). A floor is an atom like a size; its
numerator is affine in sizes and in other floors. A minimum is an atom too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache, lru_cache, reduce
from math import comb, gcd, lcm
from typing import Any, TypeVar

import numpy as np

from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Floor:
    """`floor((sum of coefficient * atom + constant) / divisor)`."""

    terms: tuple[tuple[Atom, int], ...]
    constant: int
    divisor: int

    def __str__(self) -> str:
        inside = str(Polynomial.affine(dict(self.terms), self.constant))
        return f"{inside if inside.isidentifier() else f'({inside})'}//{self.divisor}"


@dataclass(frozen=True)
class Extreme:
    """`min(...)` or `max(...)` of affine expressions, each as (terms, constant)."""

    which: str
    args: tuple[tuple[tuple[tuple[Atom, int], ...], int], ...]

    def __str__(self) -> str:
        return f"{self.which}({', '.join(str(Polynomial.affine(dict(t), c)) for t, c in self.args)})"


def _on_arrays(atom: Atom, values: Mapping[str, Any]) -> Any:
    """A size, a floor or an extreme for whole numbers, or arrays of them."""
    if isinstance(atom, str):
        return values[atom]

    def affine(terms: tuple[tuple[Atom, int], ...], constant: int) -> Any:
        return sum((c * _on_arrays(a, values) for a, c in terms), constant)

    if isinstance(atom, Floor):
        return affine(atom.terms, atom.constant) // atom.divisor
    pick = np.minimum if atom.which == "min" else np.maximum
    return reduce(pick, [affine(t, c) for t, c in atom.args])


Atom = str | Floor | Extreme
A = TypeVar("A", bound=Atom)
Monomial = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, sorted by text."""


class Polynomial:
    """An immutable polynomial: monomial -> coefficient, zero coefficients left out."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, Fraction] | None = None) -> None:
        self.terms: dict[Monomial, Fraction] = {m: c for m, c in (terms or {}).items() if c}

    @staticmethod
    def constant(value: int | Fraction) -> Polynomial:
        """A number."""
        return Polynomial({(): Fraction(value)})

    @staticmethod
    def atom(name: Atom) -> Polynomial:
        """One size or floor."""
        return Polynomial({((name, 1),): Fraction(1)})

    @staticmethod
    def affine(terms: Mapping[A, int], constant: int) -> Polynomial:
        """`sum of coefficient * atom + constant`."""
        return Polynomial({**{((a, 1),): Fraction(c) for a, c in terms.items()}, (): Fraction(constant)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Polynomial) -> Polynomial:
        out = dict(self.terms)
        for m, c in other.terms.items():
            out[m] = out.get(m, Fraction(0)) + c
        return Polynomial(out)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other.scale(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        out: dict[Monomial, Fraction] = {}
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                m = _times(a, b)
                out[m] = out.get(m, Fraction(0)) + x * y
        return Polynomial(out)

    def __pow__(self, exponent: int) -> Polynomial:
        out = Polynomial.constant(1)
        for _ in range(exponent):
            out = out * self
        return out

    def scale(self, factor: int | Fraction) -> Polynomial:
        """Every coefficient times a number."""
        return Polynomial({m: c * factor for m, c in self.terms.items()})

    def atoms(self) -> set[Atom]:
        """Sizes and floors that occur (those inside floors not)."""
        return {a for m in self.terms for a, _ in m}

    def sizes(self) -> set[str]:
        """All sizes that occur, those inside floors too."""
        return {s for a in self.atoms() for s in _sizes(a)}

    def powers_of(self, name: Atom) -> dict[int, Polynomial]:
        """The coefficients of `name ** k`, by `k`."""
        out: dict[int, dict[Monomial, Fraction]] = {}
        for m, c in self.terms.items():
            power = dict(m).get(name, 0)
            rest = tuple((a, k) for a, k in m if a != name)
            out.setdefault(power, {})[rest] = c
        return {k: Polynomial(t) for k, t in out.items()}

    def substitute(self, name: Atom, value: Polynomial) -> Polynomial:
        """`value` in place of `name` (not inside floors)."""
        out = Polynomial()
        for power, factor in self.powers_of(name).items():
            out = out + factor * value**power
        return out

    def on_arrays(self, values: Mapping[str, Any]) -> Any:
        """The value for whole numbers, or arrays of them, by size; all values are whole."""
        unit = lcm(*(c.denominator for c in self.terms.values()))
        total: Any = 0
        for m, c in self.terms.items():
            term: Any = int(c * unit)
            for a, k in m:
                term = term * _on_arrays(a, values) ** k
            total = total + term
        return total // unit

    def map_atoms(self, fn: Callable[[Atom], Polynomial]) -> Polynomial:
        """Every atom replaced."""
        out = Polynomial()
        for m, c in self.terms.items():
            term = Polynomial.constant(c)
            for a, k in m:
                term = term * fn(a) ** k
            out = out + term
        return out

    def __call__(self, values: Mapping[str, int]) -> Fraction:
        """The value for these sizes."""
        total = Fraction(0)
        for m, c in self.terms.items():
            for a, k in m:
                c = c * value_of(a, values) ** k
            total += c
        return total

    def __str__(self) -> str:
        from polyc.poly.closed_forms.polynomial_text import text

        return text(self)

    def __repr__(self) -> str:
        return f"Polynomial({self})"


def value_of(a: Atom, values: Mapping[str, int]) -> int:
    """An atom for these sizes."""
    if isinstance(a, str):
        return values[a]
    if isinstance(a, Extreme):
        pick = min if a.which == "min" else max
        return pick(sum(c * value_of(b, values) for b, c in terms) + constant for terms, constant in a.args)
    return (sum(c * value_of(b, values) for b, c in a.terms) + a.constant) // a.divisor


def floor_of(terms: Mapping[A, int], constant: int, divisor: int) -> Polynomial:
    """`floor((sum of coefficient * atom + constant) / divisor)` with whole multiples taken out."""
    whole = Polynomial.affine({a: c // divisor for a, c in terms.items()}, 0)
    rest: dict[Atom, int] = {a: c % divisor for a, c in terms.items() if c % divisor}
    factor = gcd(divisor, *rest.values())
    # floor((g*x + c) / (g*d)) = floor((x + floor(c/g)) / d)
    rest, constant, divisor = {a: c // factor for a, c in rest.items()}, constant // factor, divisor // factor
    if divisor == 1 or not rest:
        return whole + Polynomial.affine(rest, constant // divisor)
    whole = whole + Polynomial.constant(constant // divisor)
    ordered = tuple(sorted(rest.items(), key=lambda item: atom_key(item[0])))
    return whole + Polynomial.atom(Floor(ordered, constant % divisor, divisor))


@cache
def power_sum(exponent: int) -> tuple[Fraction, ...]:
    """Coefficients (by power of n) of `sum of x ** exponent for x in 0..n` as a polynomial in n
    (Faulhaber's formula)."""
    out = [Fraction(0)] * (exponent + 2)
    for j in range(exponent + 1):
        out[exponent + 1 - j] += Fraction(comb(exponent + 1, j), exponent + 1) * _bernoulli(j)
    if exponent == 0:
        out[0] += 1  # 0 ** 0 = 1
    return tuple(out)


@cache
def _bernoulli(n: int) -> Fraction:
    """Bernoulli numbers with B1 = +1/2."""
    if n == 0:
        return Fraction(1)
    if n == 1:
        return Fraction(1, 2)
    total = Fraction(0)
    for k in range(n):
        value = _bernoulli(k) if k != 1 else Fraction(-1, 2)
        total -= comb(n + 1, k) * value
    return total / (n + 1)


def sum_over(poly: Polynomial, name: Atom, low: Polynomial, high: Polynomial) -> Polynomial:
    """`sum of poly for name in low..high`, right also when `high == low - 1` (then 0)."""
    below = low - Polynomial.constant(1)
    out = Polynomial()
    for power, factor in poly.powers_of(name).items():
        part = Polynomial()
        for k, c in enumerate(power_sum(power)):
            part = part + (high**k - below**k).scale(c)
        out = out + factor * part
    return out


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a:
        return b
    if not b:
        return a
    powers = dict(a)
    for atom, k in b:
        powers[atom] = powers.get(atom, 0) + k
    return tuple(sorted(powers.items(), key=lambda item: atom_key(item[0])))


@lru_cache(maxsize=1 << 14)
def atom_key(a: Atom) -> tuple[bool, str]:
    """Sizes first, then by text."""
    return not isinstance(a, str), a if isinstance(a, str) else str(a)


def _sizes(a: Atom) -> Iterator[str]:
    if isinstance(a, str):
        yield a
        return
    for terms in (a.terms,) if isinstance(a, Floor) else (t for t, _ in a.args):
        for b, _ in terms:
            yield from _sizes(b)


def affine_terms(p: Polynomial) -> tuple[tuple[tuple[Atom, int], ...], int] | None:
    """`p` as (terms, constant) when it is affine with whole coefficients, else None."""
    if any(sum(k for _, k in m) > 1 or c.denominator != 1 for m, c in p.terms.items()):
        return None
    return tuple((m[0][0], int(c)) for m, c in p.terms.items() if m), int(p.terms.get((), 0))


def rewritten(p: Polynomial, fn: Callable[[str], Polynomial]) -> Polynomial:
    """Affine expressions in place of sizes, inside floors and extremes too."""

    def inside(terms: tuple[tuple[Atom, int], ...], constant: int) -> Polynomial:
        out = Polynomial.constant(constant)
        for b, c in terms:
            out = out + put(b).scale(c)
        return out

    def put(a: Atom) -> Polynomial:
        if isinstance(a, str):
            return fn(a)
        if isinstance(a, Floor):
            known = affine_terms(inside(a.terms, a.constant))
            assert known is not None
            return floor_of(dict(known[0]), known[1], a.divisor)
        args = [inside(*arg) for arg in a.args]
        if all(not x.atoms() for x in args):
            values = [x({}) for x in args]
            return Polynomial.constant(min(values) if a.which == "min" else max(values))
        forms = [affine_terms(x) for x in args]
        return Polynomial.atom(Extreme(a.which, tuple(x for x in forms if x is not None)))

    return p.map_atoms(put)
