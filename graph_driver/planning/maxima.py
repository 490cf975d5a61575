"""Maxima of sums of tensors' bytes, for all sizes at once.

The bytes of an arena are sums of the same few formulas, so all that is asked of a product of sizes (its ends, its value
for the representative sizes) is asked once, and a sum is only which products are in it how often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.graph_driver.graph.size import Atom, Extent, Monomial, Size, evaluate
from polyc.graph_driver.graph.symbols import Symbols

MAX_TERMS = 12  # of a maximum that is printed
Sum = tuple[tuple[int, int], ...]
"""Numbers of products, rising, each with its factor."""
NOTHING: Sum = ()


class Sums:
    """Sums of these sizes; `of` has each size as one, by name."""

    def __init__(self, symbols: Symbols, sizes: Mapping[str, Extent]) -> None:
        self._symbols = symbols
        found = {m for s in sizes.values() if isinstance(s, Size) for m, _ in s.terms} | {()}
        # As `Size` has its terms: the text decides only between products of the same degree.
        self._products = [m for m, _ in Size(symbols, dict.fromkeys(found, 1)).terms]
        self._number = {m: k for k, m in enumerate(self._products)}
        alone = [Size(symbols, {m: 1}) if m else 1 for m in self._products]
        self._ends = [symbols.bounds(s) for s in alone]
        self._typical = [evaluate(s, symbols.typical) for s in alone]
        self._rests: dict[tuple[int, int], int | None] = {}
        self.of = {name: self._sum(size) for name, size in sizes.items()}

    def _sum(self, size: Extent) -> Sum:
        if isinstance(size, Size):
            return tuple((self._number[m], f) for m, f in size.terms)
        return ((self._number[()], size),) if size else NOTHING

    @staticmethod
    def added(a: Sum, b: Sum, times: int = 1) -> Sum:
        """a + times * b."""
        out = dict(a)
        for k, f in b:
            out[k] = out.get(k, 0) + times * f
        return tuple(sorted((k, f) for k, f in out.items() if f))

    def formulas(self, sums: Sequence[Sum]) -> list[Extent]:
        """The sums as sizes."""
        return [self._formula(s) for s in sums]

    def _formula(self, s: Sum) -> Extent:
        terms = {self._products[k]: f for k, f in s}
        return terms.get((), 0) if set(terms) <= {()} else Size(self._symbols, terms)

    def largest(self, sums: Sequence[Sum]) -> list[Sum]:
        """Those that are not below another one for all sizes in their ranges; of many, the largest for the
        representative sizes."""
        kept: list[Sum] = []
        for s in dict.fromkeys(sums):
            if any(self.at_least(other, s) for other in kept):
                continue
            kept = [other for other in kept if not self.at_least(s, other)] + [s]
        if len(kept) <= MAX_TERMS:
            return kept
        return sorted(kept, key=lambda s: -sum(f * self._typical[k] for k, f in s))[:MAX_TERMS]

    def at_least(self, a: Sum, b: Sum) -> bool:
        """Whether a >= b is known for all sizes."""
        gap = self.added(a, b, -1)
        low: int | None = 0
        for k, f in gap:
            end = self._ends[k][0 if f > 0 else 1]
            if end is None or low is None:
                low = None
                break
            low += f * end
        # The common factor of all terms taken out: B*L*12 >= B*12 although both have no upper end.
        return (low is not None and low >= 0) or self._termwise(gap)

    def _termwise(self, gap: Sum) -> bool:
        """Whether each negative term is outweighed by a positive one that it divides."""
        left = {k: f for k, f in gap if f > 0}
        for k, factor in gap:
            need = -factor
            for m in list(left) if need > 0 else []:
                if need <= 0:
                    break
                rest = self._rest(m, k)
                if rest is not None:
                    taken = min(need, left[m] * max(rest, 0))
                    need -= taken
                    left[m] -= -(-taken // max(rest, 1))
            if factor < 0 and need > 0:
                return False
        return True

    def _rest(self, whole: int, part: int) -> int | None:
        """The least value of one product without another that divides it; None where that does not divide it, 0 where
        nothing is known of what is left."""
        if (whole, part) not in self._rests:
            rest = _without(self._products[whole], self._products[part])
            self._rests[whole, part] = None if rest is None else self._least(rest)
        return self._rests[whole, part]

    def _least(self, product: Monomial) -> int:
        """A number that it is at least; 0 where nothing is known of it."""
        return self._symbols.bounds(Size(self._symbols, {product: 1}) if product else 1)[0] or 0


def _without(whole: Monomial, part: Monomial) -> Monomial | None:
    """whole / part, None when part does not divide it."""
    powers: dict[Atom, int] = dict(part)
    if any(dict(whole).get(a, 0) < p for a, p in part):
        return None
    return tuple((a, p - powers.get(a, 0)) for a, p in whole if p > powers.get(a, 0))
