"""Polynomials as text for people, factored where that is easy: `N*(N - 1)/2`."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm

from polyc.poly.closed_forms.polynomial import Atom, Floor, Monomial, Polynomial, atom_key


def text(p: Polynomial) -> str:
    """In Python's syntax."""
    if not p.terms:
        return "0"
    denominator = lcm(*(c.denominator for c in p.terms.values()))
    numerators = {m: int(c * denominator) for m, c in p.terms.items()}
    common = gcd(*numerators.values())
    if all(c < 0 for c in numerators.values()):
        common = -common
    shared = _shared(list(numerators))
    rest = Polynomial({_without(m, shared): Fraction(c // common) for m, c in numerators.items()})
    factors, rest = _linear_factors(rest)
    parts = [_factor_text(a, k) for a, k in shared]
    for name, root in dict.fromkeys(factors):
        times = factors.count((name, root))
        parts.append(f"({name} {'-' if root > 0 else '+'} {abs(root)}){f'**{times}' if times > 1 else ''}")
    if rest.terms != {(): Fraction(1)}:
        parts.append(_sum_text(rest) if not parts and common == 1 and denominator == 1 else f"({_sum_text(rest)})")
    sign = "-" if common < 0 else ""
    if abs(common) != 1 or not parts:
        parts.insert(0, str(abs(common)))
    if len(parts) == 1 and denominator == 1 and not sign and len(rest.terms) <= 1:
        return _sum_text(p)
    return sign + "*".join(parts) + (f"/{denominator}" if denominator != 1 else "")


def _order(item: tuple[Monomial, int]) -> tuple[int, list[tuple[str, int]]]:
    """Highest degree first; then by name, so that texts are stable."""
    m = item[0]
    return sum(k for _, k in m), [(chr(0x10FFFF - ord(str(a)[0])), k) for a, k in m]


def _shared(monomials: list[Monomial]) -> Monomial:
    powers = dict(monomials[0])
    for m in monomials[1:]:
        other = dict(m)
        powers = {a: min(k, other[a]) for a, k in powers.items() if a in other}
    return tuple(sorted(powers.items(), key=lambda item: atom_key(item[0])))


def _without(m: Monomial, shared: Monomial) -> Monomial:
    take = dict(shared)
    return tuple((a, k - take.get(a, 0)) for a, k in m if k != take.get(a, 0))


def _linear_factors(p: Polynomial) -> tuple[list[tuple[str, int]], Polynomial]:
    """Factors `(name - root)` with small integer roots of a polynomial in one size."""
    found: list[tuple[str, int]] = []
    names = p.atoms()
    if len(names) != 1 or not isinstance(name := next(iter(names)), str):
        return found, p
    degree = max(k for m in p.terms for _, k in m) if p.terms else 0
    row = [p.terms.get(((name, k),) if k else (), Fraction(0)) for k in range(degree, -1, -1)]
    for root in sorted(range(-8, 9), key=abs):
        while len(row) > 2 or (len(row) == 2 and found):
            out = [row[0]]
            for c in row[1:]:
                out.append(out[-1] * root + c)
            if out.pop():
                break
            found.append((name, root))
            row = out
    rest: dict[Monomial, Fraction] = {((name, k),) if k else (): c for k, c in zip(range(len(row) - 1, -1, -1), row)}
    return found, Polynomial(rest)


def _factor_text(a: Atom, power: int) -> str:
    text = f"({a})" if isinstance(a, Floor) else str(a)
    return text if power == 1 else f"{text}**{power}"


def _sum_text(p: Polynomial) -> str:
    ordered = sorted(((m, int(c)) for m, c in p.terms.items()), key=_order, reverse=True)
    first = next((k for k, (_, c) in enumerate(ordered) if c > 0), 0)
    ordered.insert(0, ordered.pop(first))
    out = ""
    for m, c in ordered:
        alone = len(m) == 1 and m[0][1] == 1 and abs(c) == 1
        parts = [str(m[0][0])] if alone else [_factor_text(a, k) for a, k in m]
        if abs(c) != 1 or not parts:
            parts.insert(0, str(abs(c)))
        sign = ("-" if c < 0 else "") if not out else (" - " if c < 0 else " + ")
        out += sign + "*".join(parts)
    return out
