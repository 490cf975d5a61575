"""When products of words pay: what packing costs against what it saves."""

from __future__ import annotations

from math import prod

from polyc.poly.expr import Expr, variables
from polyc.poly.scop import Statement
from polyc.scheduler.recognition.contraction import FAR, extent

LEAST_USES = 8
"""Products that each number takes part in: to put one into a word costs a few operations, a product saves less than
one."""


def uses(s: Statement, factor: Expr) -> int:
    """How many products a number of a factor takes part in; loops of unknown length are long."""
    own = variables(factor)
    return prod(extent(s, i) or FAR for i in s.iters if i not in own)


def pays(s: Statement, factors: tuple[Expr, Expr]) -> bool:
    """Whether both factors are worth packing."""
    return all(uses(s, f) >= LEAST_USES for f in factors)
