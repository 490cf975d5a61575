"""What an update adds: a sum of products, each a sign and a list of factors.

Inside a reduction that may be reassociated the factors of a summand may be multiplied in any order, so this is the
normal form of what is added up, however it is spelled: `alpha * A[i, k] * B[k, j]`, `(X[i, k] - m[i]) * W[j, k] * 2.0`.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.poly.expr import Binary, Expr, Unary
from polyc.poly.records import dataclass
from polyc.poly.scop import Statement


@dataclass(frozen=True, slots=True)
class Product:
    """A summand: `factors` in the order of the text; `negative` if it is subtracted."""

    negative: bool
    factors: tuple[Expr, ...]

    def value(self) -> Expr:
        """The product as an expression, its sign first."""
        first, *rest = self.factors
        if self.negative:
            first = Unary("neg", first, first.dtype)
        for factor in rest:
            first = Binary("*", first, factor, first.dtype)
        return first


def products(stmt: Statement) -> tuple[Product, ...]:
    """What `A[...] += e` adds and `A[...] -= e` subtracts, as products; nothing for other statements."""
    value = stmt.value
    if stmt.reduction != "+" or not isinstance(value, Binary) or value.op not in ("+", "-"):
        return ()
    return tuple(_summands(value.b, value.op == "-"))


def _summands(e: Expr, negative: bool) -> Iterator[Product]:
    if isinstance(e, Binary) and e.op in ("+", "-"):
        yield from _summands(e.a, negative)
        yield from _summands(e.b, negative != (e.op == "-"))
        return
    factors: list[Expr] = []
    yield Product(_multiplied(e, factors) != negative, tuple(factors))


def _multiplied(e: Expr, factors: list[Expr]) -> bool:
    """Add the factors of `e`; whether their product is to be negated."""
    if isinstance(e, Binary) and e.op == "*":
        return _multiplied(e.a, factors) != _multiplied(e.b, factors)
    if isinstance(e, Unary) and e.op == "neg":
        return not _multiplied(e.a, factors)
    factors.append(e)
    return False
