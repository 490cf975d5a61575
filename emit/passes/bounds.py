"""Trip counts of loops: exact, bounded by a constant, or unknown."""

from __future__ import annotations

from polyc.emit.loop_ir.linear import Linear, difference, linear, operands
from polyc.emit.loop_ir.loops import For
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Const, Expr
from polyc.poly.records import dataclass


@dataclass(frozen=True, slots=True)
class Full:
    """The loop runs `trip` times from `lo` to `hi` when all `conditions` hold, never more often."""

    lo: Expr
    hi: Expr
    trip: int
    conditions: tuple[Expr, ...]


def full(loop: For) -> Full | None:
    """The largest trip count that the bounds allow, if it is a constant.

    `range(max(a, b), min(c, d))` is full where its shortest constant distance, say d - a,
    is what counts: a >= b and d <= c. So is `range(a, max(1, min(c, d)))`, as far as d >= 1.
    """
    least, end = _at_least(loop.hi)
    lows, highs = operands(loop.lo, "max"), operands(end, "min")
    best: Full | None = None
    for lo in lows:
        for hi in highs:
            extent = difference(hi, lo)
            if extent is None or (least is not None and (difference(hi, least) or 0) <= 0):
                continue
            trip = max(0, -(-extent // loop.step))
            if best is None or trip < best.trip:
                conditions = [Binary(">=", lo, x, bool_) for x in lows if x is not lo]
                conditions += [Binary(">=", x, hi, bool_) for x in highs if x is not hi]
                best = Full(lo, hi, trip, tuple(conditions))
    return best


def _at_least(e: Expr) -> tuple[Const | None, Expr]:
    """A number and an expression of which `e` is the larger."""
    if isinstance(e, Binary) and e.op == "max":
        for number, other in ((e.a, e.b), (e.b, e.a)):
            if isinstance(number, Const):
                return number, other
    return None, e


def not_negative(condition: Expr) -> Linear | None:
    """What a condition `a >= b` or `a <= b` says is not negative; None for other conditions."""
    if not isinstance(condition, Binary) or condition.op not in (">=", "<="):
        return None
    difference = linear(condition.a) - linear(condition.b)
    return difference if condition.op == ">=" else difference.scale(-1)
