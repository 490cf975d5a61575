"""Index expressions with products: equal as polynomials over quasi-affine atoms?

Sums and products are multiplied out (integers wrap, so that this is exact); a `min`, `max`,
`//` or `%` is an atom, unless where the expression is evaluated decides it.
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.expr import Binary, Const, Expr, Unary
from polyc.poly.forms.affine import NotAffine, to_pw_aff

Polynomial = dict[tuple[int, ...], int]  # factors (numbers of atoms, ascending) -> coefficient


class Polynomials:
    """Normal forms on the points `where`; atoms that agree there have one number."""

    def __init__(self, where: isl.Set) -> None:
        self.where = where
        self.space = where.get_space()
        self.atoms: list[Expr] = []

    def equal(self, a: Expr, b: Expr) -> bool:
        """Whether the two are seen to have the same values."""
        return self.of(a) == self.of(b)

    def of(self, e: Expr) -> Polynomial:
        """The normal form, without zero coefficients."""
        if isinstance(e, Const):
            return {(): int(e.value)} if e.value else {}
        if isinstance(e, Unary) and e.op == "neg":
            return _product({(): -1}, self.of(e.a))
        if isinstance(e, Binary) and e.op in ("+", "-"):
            return _sum(self.of(e.a), self.of(e.b), 1 if e.op == "+" else -1)
        if isinstance(e, Binary) and e.op == "*":
            return _product(self.of(e.a), self.of(e.b))
        if isinstance(e, Binary) and e.op in ("min", "max"):
            for one, other in ((e.a, e.b), (e.b, e.a)):
                low, high = (one, other) if e.op == "min" else (other, one)
                if self.never_above(low, high):
                    return self.of(one)
        return {(self.number(e),): 1}

    def never_above(self, low: Expr, high: Expr) -> bool:
        """Whether `low <= high` is seen to hold at all points; False for what is not affine."""
        try:
            holds = to_pw_aff(low, self.space).le_set(to_pw_aff(high, self.space))
        except NotAffine:
            return False
        return bool(self.where.is_subset(holds))

    def number(self, e: Expr) -> int:
        """The atom's number: that of an earlier one with the same values."""
        for k, known in enumerate(self.atoms):
            if known == e or (self.never_above(known, e) and self.never_above(e, known)):
                return k
        self.atoms.append(e)
        return len(self.atoms) - 1


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    out = dict(a)
    for factors, c in b.items():
        out[factors] = out.get(factors, 0) + sign * c
    return {f: c for f, c in out.items() if c}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for f, x in a.items():
        for g, y in b.items():
            key = tuple(sorted((*f, *g)))
            out[key] = out.get(key, 0) + x * y
    return {f: c for f, c in out.items() if c}
