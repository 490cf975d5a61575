"""`Size`: a tensor's extent as a formula of the model's symbolic sizes.

A formula is a polynomial with integer coefficients over symbols and quotients `a // b`, in one
canonical form, so that equal structure is equal meaning (`batch*length*384` of a reshape meets
`384*(batch*length)` of a matrix product). A `Size` is a `Dim` of the operator language, so the
operator library computes with it as it does with integers.

`==` asks whether two formulas are known to be equal for all sizes; an order (`<`) that does not
hold for all or for none is decided by the representative values and becomes a guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import gcd
from typing import Any, Protocol

from polyc.frontend_dsl.annotations import Dim
from polyc.graph_driver.graph.errors import Unsupported
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Unary, Var
from polyc.poly.records import dataclass


class SizeError(Unsupported):
    """A number is needed where the size is a formula."""

    code = "P407"


@dataclass(frozen=True)
class Quotient:
    """`above // below` rounded down; `below` is positive."""

    above: Extent
    below: Extent

    def __str__(self) -> str:
        return self._shown

    @cached_property
    def _shown(self) -> str:
        parts = (str(p) if isinstance(p, int) or p.simple else f"({p})" for p in (self.above, self.below))
        return "//".join(parts)


Atom = str | Quotient
Monomial = tuple[tuple[Atom, int], ...]  # powers of atoms, sorted by their text
Terms = dict[Monomial, int]


class Home(Protocol):
    """What formulas ask of the symbols that they are made of (`polyc.graph_driver.graph.symbols.Symbols`)."""

    def parameter(self, size: Size) -> str:
        """The name of the kernel parameter that holds a symbol, a product or a quotient."""

    def formula(self, parameter: str) -> Size:
        """The size behind a parameter."""

    def bounds(self, size: Extent) -> tuple[int | None, int | None]:
        """What the ranges of the symbols leave for a size (None: no end)."""

    def only_value(self, quotient: Quotient) -> int | None:
        """The number that a quotient is at all sizes, if it is one."""

    def decide_negative(self, size: Extent) -> bool:
        """Whether a size is below zero; where that depends on the symbols, a guard keeps what is decided."""

    def most(self, size: Size) -> int | None:
        """The largest value of a size."""

    def never_negative(self) -> tuple[Expr, ...]:
        """What is known of several symbols."""

    def range_of(self, name: str) -> object:
        """The range of a symbol. Raises `ValueError` for a name that is none."""


class Size(Dim):
    """A formula of the symbols of one model (`home`). Arithmetic gives `int` where nothing symbolic is left."""

    __slots__ = ("__dict__", "_hash", "home", "terms")
    from_outside = True

    def __init__(self, home: Home, terms: Terms) -> None:
        self.home = home
        self.terms = tuple(terms.items())
        if len(terms) > 1:
            self.terms = tuple(sorted(self.terms, key=lambda t: (-sum([p for _, p in t[0]]), _text(t[0]))))
        self._hash = hash((id(home), self.terms))

    # ---- as a Dim: an expression of the kernel's parameters ----------------------------------

    @cached_property
    def expr(self) -> Expr:  # type: ignore[override]
        """Affine in the parameters of the kernels; a product of symbols is a parameter of its own."""
        out: Expr | None = None
        for monomial, factor in self.terms:
            if not monomial:
                continue
            atom = self._atom_expr(monomial)
            term = atom if factor == 1 else Binary("*", Const(factor, i64), atom, i64)
            out = term if out is None else Binary("+", out, term, i64)
        constant = dict(self.terms).get((), 0)
        assert out is not None
        return out if not constant else Binary("+", out, Const(constant, i64), i64)

    def _atom_expr(self, monomial: Monomial) -> Expr:
        if len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            if isinstance(atom, str):
                return Var(self.home.parameter(symbol(self.home, atom)))
            if isinstance(atom.below, int) and isinstance(atom.above, Size):  # of products, too: n // 3 * 3 <= n
                return Binary("//", atom.above.expr, Const(atom.below, i64), i64)
        return Var(self.home.parameter(Size(self.home, {monomial: 1})))

    @property
    def simple(self) -> bool:
        """Whether it is one symbol."""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and self.symbols() == {str(self)}

    @property
    def affine(self) -> bool:
        """Whether it is a sum of symbols and of their quotients by numbers."""
        for monomial, _ in self.terms:
            if len(monomial) > 1 or (monomial and monomial[0][1] > 1):
                return False
            if monomial and isinstance(monomial[0][0], Quotient):
                q = monomial[0][0]
                if not isinstance(q.below, int) or not (isinstance(q.above, Size) and q.above.affine):
                    return False
        return True

    def ranges(self) -> dict[str, tuple[int, int | None]]:
        """What is known of the kernel parameters in it."""
        found: dict[str, tuple[int, int | None]] = {}
        for name in self.names():
            low, high = self.home.bounds(self.home.formula(name))
            found[name] = (low if low is not None else 1, high)
        return found

    def facts(self) -> tuple[Expr, ...]:
        """The guards of a model that are affine."""
        return self.home.never_negative()

    def most(self) -> int | None:
        """Exact where it is affine."""
        return self.home.most(self)

    def value(self) -> None:
        """Never known outside of a run."""
        return None

    # ---- arithmetic ------------------------------------------------------------------------

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Any:
        if isinstance(other, bool) or not isinstance(other, (int, Size)):
            index = getattr(other, "__index__", None)
            if isinstance(other, (bool, Dim, float)) or index is None:
                return NotImplemented
            other = index()
        a, b = (other, self) if swapped else (self, other)
        return _FUNCTIONS[op](self.home, a, b)

    def __neg__(self) -> Extent:
        return _scaled(self.home, self, -1)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __truediv__(self, other: Any) -> Any:
        raise SizeError(f"the size {self} divided without rounding")

    def __pow__(self, other: Any) -> Any:
        out: Extent = 1
        for _ in range(other):
            out = out * self
        return out

    def _known(self, what: str) -> int:
        raise SizeError(f"the size {self} is known at run time only (no {what} of it)")

    # ---- comparison ------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and other.home is self.home and other.terms == self.terms

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Any) -> bool:
        return self.home.decide_negative(self - other)

    def __gt__(self, other: Any) -> bool:
        return self.home.decide_negative(other - self)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self > 0 or self < 0

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return self._shown

    @cached_property
    def _shown(self) -> str:
        out = ""
        for monomial, factor in self.terms:
            text = _text(monomial)
            size = abs(factor)
            if size == 1 and len(monomial) == 1 and isinstance(monomial[0][0], Quotient):
                text = str(monomial[0][0])  # alone: no parentheses
            term = text if size == 1 and text else f"{size}*{text}" if text else str(size)
            out += (" - " if factor < 0 else " + ") + term if out else ("-" if factor < 0 else "") + term
        return out

    # ---- values ----------------------------------------------------------------------------

    def at(self, values: Mapping[str, int]) -> int:
        """The number for these values of the symbols. Raises `KeyError` for a symbol without one."""
        total = 0
        for monomial, factor in self.terms:
            for atom, power in monomial:
                if isinstance(atom, str):
                    factor *= values[atom] ** power
                else:
                    factor *= (evaluate(atom.above, values) // evaluate(atom.below, values)) ** power
            total += factor
        return total

    def symbols(self) -> set[str]:
        """Names of the symbols in it."""
        found: set[str] = set()
        for atom in self.atoms():
            if isinstance(atom, str):
                found.add(atom)
            else:
                for part in (atom.above, atom.below):
                    found |= part.symbols() if isinstance(part, Size) else set()
        return found

    def atoms(self) -> Iterator[Atom]:
        """Symbols and quotients of the polynomial."""
        return (atom for monomial, _ in self.terms for atom, _ in monomial)


Extent = int | Size


def _text(monomial: Monomial) -> str:
    atoms = ((f"({a})" if isinstance(a, Quotient) else a, p) for a, p in monomial)
    return "*".join(a if p == 1 else f"{a}^{p}" for a, p in atoms)


def symbol(home: Home, name: str) -> Size:
    """The symbol itself as a size."""
    return Size(home, {((name, 1),): 1})


def evaluate(size: Extent, values: Mapping[str, int]) -> int:
    """The number for these values of the symbols. Raises `KeyError` for a symbol without one."""
    return size if isinstance(size, int) else size.at(values)


def size_of(home: Home, expr: Expr) -> Extent:
    """The formula that an extent of a Scop's array stands for; the inverse of `Size.expr`.

    Raises:
        SizeError: the expression has no formula.
    """
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return home.formula(expr.name)
    if isinstance(expr, Unary) and expr.op == "neg":
        return -size_of(home, expr.a)
    if isinstance(expr, Binary) and expr.op in _FUNCTIONS:
        return _FUNCTIONS[expr.op](home, size_of(home, expr.a), size_of(home, expr.b))
    raise SizeError("an extent that is no formula of sizes")


# ---- polynomials -------------------------------------------------------------------------------


def _terms(x: Extent) -> Terms:
    return dict(x.terms) if isinstance(x, Size) else ({(): x} if x else {})


def _size(home: Home, terms: Terms) -> Extent:
    terms = {m: f for m, f in terms.items() if f}
    if not terms:
        return 0
    if set(terms) == {()}:
        return terms[()]
    return Size(home, terms)


def _sum(home: Home, a: Extent, b: Extent) -> Extent:
    out = _terms(a)
    for m, f in _terms(b).items():
        out[m] = out.get(m, 0) + f
    return _size(home, out)


def _scaled(home: Home, a: Extent, factor: int) -> Extent:
    return _size(home, {m: f * factor for m, f in _terms(a).items()})


def _product(home: Home, a: Extent, b: Extent) -> Extent:
    out: Terms = {}
    for m, f in _terms(a).items():
        for n, g in _terms(b).items():
            key = _joined(m, n)
            out[key] = out.get(key, 0) + f * g
    return _size(home, out)


def _joined(m: Monomial, n: Monomial) -> Monomial:
    powers = dict(m)
    for atom, p in n:
        powers[atom] = powers.get(atom, 0) + p
    left = [(a, p) for a, p in powers.items() if p]
    return tuple(left) if len(left) < 2 else tuple(sorted(left, key=lambda item: str(item[0])))


def _without(m: Monomial, n: Monomial) -> Monomial | None:
    """m / n, None when n does not divide m."""
    powers = dict(m)
    for atom, p in n:
        powers[atom] = powers.get(atom, 0) - p
    if any(p < 0 for p in powers.values()):
        return None
    return tuple(sorted(((a, p) for a, p in powers.items() if p), key=lambda item: str(item[0])))


def _floordiv(home: Home, a: Extent, b: Extent) -> Extent:
    """a // b for a positive b: exact quotients are polynomials again, nested quotients become one."""
    if isinstance(b, Size):
        return _divided_by_size(home, a, b)
    if b <= 0:
        raise SizeError(f"the size {a} divided by {b}")
    if isinstance(a, int) or b == 1:
        return a if b == 1 else int(a) // b
    whole = {m: f // b for m, f in a.terms}
    rest = _size(home, {m: f % b for m, f in a.terms})
    if isinstance(rest, int):  # less than b: gone
        return _size(home, whole)
    return _sum(home, _size(home, whole), _quotient(home, rest, b))


def _quotient(home: Home, a: Size, b: int) -> Extent:
    """a // b where no coefficient reaches b."""
    common = gcd(b, *(f for m, f in a.terms if m))
    if common > 1:  # (c x + k) // (c b) = (x + k // c) // b
        return _floordiv(home, _size(home, {m: f // common for m, f in a.terms}), b // common)
    terms = dict(a.terms)
    constant = terms.pop((), 0)
    ((monomial, factor), *more) = terms.items()
    if not more and factor == 1 and len(monomial) == 1 and monomial[0][1] == 1:
        atom = monomial[0][0]
        if isinstance(atom, Quotient) and isinstance(atom.below, int):  # (x // c + k) // b = (x + k c) // (b c)
            return _floordiv(home, _sum(home, atom.above, constant * atom.below), b * atom.below)
    only = home.only_value(Quotient(a, b))
    return Size(home, {((Quotient(a, b), 1),): 1}) if only is None else only


def _divided_by_size(home: Home, a: Extent, b: Size) -> Extent:
    """Polynomial division; a quotient of its own where it leaves a remainder."""
    lead, factor = b.terms[0]
    rest, out = a, _size(home, {})
    while isinstance(rest, Size) or rest != 0:
        found = next(
            ((n, g) for n, g in _terms(rest).items() if _without(n, lead) is not None and g % factor == 0), None
        )
        if found is None:
            return Size(home, {((Quotient(a, b), 1),): 1})
        quotient = _without(found[0], lead)
        assert quotient is not None
        step = _size(home, {quotient: found[1] // factor})
        out, rest = _sum(home, out, step), _sum(home, rest, _scaled(home, _product(home, step, b), -1))
        if len(_terms(rest)) > 64:
            return Size(home, {((Quotient(a, b), 1),): 1})
    return out


def _mod(home: Home, a: Extent, b: Extent) -> Extent:
    return _sum(home, a, _scaled(home, _product(home, b, _floordiv(home, a, b)), -1))


_FUNCTIONS = {
    "+": _sum,
    "-": lambda home, a, b: _sum(home, a, _scaled(home, b, -1)),
    "*": _product,
    "//": _floordiv,
    "%": _mod,
}


# ---- as plain data -----------------------------------------------------------------------------


def to_data(size: Extent) -> Any:
    """Plain lists and numbers, for the plan's file."""
    if isinstance(size, int):
        return size
    return [[[[_atom_data(a), p] for a, p in m], f] for m, f in size.terms]


def _atom_data(atom: Atom) -> Any:
    return atom if isinstance(atom, str) else [to_data(atom.above), to_data(atom.below)]


def from_data(home: Home, data: Any) -> Extent:
    """The formula back. Raises `ValueError` or `TypeError` when the data are not one."""
    if isinstance(data, int) and not isinstance(data, bool):
        return data
    terms: Terms = {}
    for powers, factor in data:
        monomial = tuple(sorted(((_atom_of(home, a), int(p)) for a, p in powers), key=lambda item: str(item[0])))
        terms[monomial] = terms.get(monomial, 0) + int(factor)
    return _size(home, terms)


def _atom_of(home: Home, data: Any) -> Atom:
    if isinstance(data, str):
        home.range_of(data)  # a symbol of this model
        return data
    above, below = data
    return Quotient(from_data(home, above), from_data(home, below))
