"""Which factors of a summand belong together, so that a sum of products becomes one of two elements each.

A factor is moved by the loops that stand in it. Factors that the same loops move are one element of an array that has
these loops as subscripts: computed ahead (`Schedule.outline`) they make a contraction of `(X[i, k] - m[i]) * r[k] *
W[j, k]`, of `alpha * A[i, k] * B[k, j]`, and of a product of an array with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod

from polyc.poly.expr import Call, Expr, Load, Var, loads, variables
from polyc.poly.products import Product, products
from polyc.poly.records import dataclass
from polyc.poly.scop import Statement
from polyc.scheduler.recognition.contraction import PAIR_PRODUCTS, extent, stripped

Loops = frozenset[str]

UNKNOWN = 1 << 10  # iterations of a loop whose number is not known
MOST_FACTORS = 6  # with different loops, of which the best two groups are looked for


@dataclass(frozen=True, slots=True)
class Side:
    """Factors that become one operand, and the loops that move them, the outermost subscript first: as in memory where
    they are lanes of vectors, else with neighbours along the sum."""

    loops: tuple[str, ...]
    factors: tuple[Expr, ...]

    @property
    def element(self) -> Load | None:
        """The element of an array that the side is already."""
        factor = stripped(self.factors[0])
        return factor if len(self.factors) == 1 and isinstance(factor, Load) else None


def sides(stmt: Statement, one_along: bool = False) -> tuple[Side, Side] | None:
    """The two operands that the factors of what `stmt` adds make, None where they make none that share their loops.

    Each side moves over the result alone, and both along the sum (with `one_along`, at least one of them): every
    element of each is used many times.
    """
    summands = products(stmt)
    if len(summands) != 1 or stmt.predicate is not None or stmt.dynamic:
        return None
    product = _in_words(summands[0], stmt)
    if product is None:
        return None
    outputs = [e.name for e in stmt.index if isinstance(e, Var)]
    if len(outputs) < len(stmt.index) or len(set(outputs)) < len(outputs):
        return None
    moved = [variables(f) & set(stmt.iters) for f in product.factors]
    largest = [m for m in dict.fromkeys(moved) if not any(m < other for other in moved)]
    if not 2 <= len(largest) <= MOST_FACTORS:
        return None
    pairs = (p for p in _cuts(largest) if _shared(p, outputs, stmt.iters, one_along))
    best = min(pairs, key=lambda p: _elements(stmt, p[0]) + _elements(stmt, p[1]), default=None)
    return None if best is None else _filled(stmt, product, moved, best)


def _in_words(product: Product, stmt: Statement) -> Product | None:
    """A product of words of several numbers with these as its factors, which have to be elements of two arrays already;
    any other product as it is."""
    (word, *others) = product.factors
    if not isinstance(word, Call) or word.fn not in PAIR_PRODUCTS:
        return product
    arrays = {e.array for e in word.args if isinstance(e, Load)}
    fits = not others and not product.negative and len(arrays | {stmt.array}) == 3
    return replace(product, factors=word.args) if fits else None


def to_outline(stmt: Statement, pair: Sequence[Side]) -> list[Side]:
    """Those of the two sides that are to be computed ahead, the first with what may go to either of them."""
    first, second = pair
    lanes = stmt.index[-1] if stmt.index else None
    rows = sorted(pair, key=lambda side: isinstance(lanes, Var) and lanes.name in side.loops)
    found = [side for side in rows if not _plain(stmt, side)]
    same = first.element is not None and second.element is not None and first.element.array == second.element.array
    (product,) = products(stmt)
    if not found and (same or product.negative):
        found = [rows[0]]
    return found


def reuse(stmt: Statement, side: Side) -> int:
    """How often an element of a side is used."""
    return prod(extent(stmt, i) or UNKNOWN for i in stmt.iters if i not in side.loops)


def _cuts(sets: Sequence[Loops]) -> Iterable[tuple[Loops, Loops]]:
    """Every way to join the sets to two."""
    for count in range(len(sets) - 1):
        for others in combinations(sets[1:], count):
            one = sets[0].union(*others)
            two = frozenset().union(*(s for s in sets[1:] if s not in others))
            yield one, two


def _shared(pair: tuple[Loops, Loops], outputs: Sequence[str], iters: Sequence[str], one_along: bool) -> bool:
    """Whether each moves over the result alone, both together (or one of them) along the sum, and all loops move one of
    them."""
    one, two = pair
    result = set(outputs)
    alone = (one - two) & result and (two - one) & result
    along = (one | two if one_along else one & two) - result
    return bool(alone and along and one | two == set(iters))


def _elements(stmt: Statement, side: Loops) -> int:
    return prod(extent(stmt, i) or UNKNOWN for i in side)


def _filled(stmt: Statement, product: Product, moved: Sequence[Loops], pair: tuple[Loops, Loops]) -> tuple[Side, Side]:
    """Both sides with their factors; what moves with either goes to the first that is no element without it."""
    loops = [_subscripts(stmt, product, side) for side in pair]
    own: list[list[Expr]] = [[], []]
    free: list[Expr] = []
    for factor, by in zip(product.factors, moved, strict=True):
        inside = [k for k in (0, 1) if by <= pair[k]]
        (own[inside[0]] if len(inside) == 1 else free).append(factor)
    made = [Side(loops[k], tuple(own[k])) for k in (0, 1)]
    if free:
        lanes = stmt.index[-1]
        at = next((k for k in (0, 1) if not _plain(stmt, made[k])), None)
        if at is None:
            at = next((k for k in (0, 1) if isinstance(lanes, Var) and lanes.name not in loops[k]), 0)
        made[at] = Side(loops[at], (*made[at].factors, *free))
    return made[0], made[1]


def _subscripts(stmt: Statement, product: Product, side: Loops) -> tuple[str, ...]:
    """The loops of a side in the order in which an array of its elements has them."""
    lanes = stmt.index[-1]
    if isinstance(lanes, Var) and lanes.name in side:
        for load in (load for f in product.factors for load in loads(f)):
            names = [e.name for e in load.index if isinstance(e, Var)]
            if len(names) == len(load.index) and set(names) == side:
                return tuple(names)
    outputs = {e.name for e in stmt.index if isinstance(e, Var)}
    return tuple(sorted((i for i in stmt.iters if i in side), key=lambda i: i not in outputs))


def _plain(stmt: Statement, side: Side) -> bool:
    """Whether the side is an element of another array than the result's."""
    return side.element is not None and all(load.array != stmt.array for f in side.factors for load in loads(f))
