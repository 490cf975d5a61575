"""Operators made of several smaller Scops: one after another, or side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyc.graph_driver.operators.context import NodeContext, OperatorScop, array_shape
from polyc.poly.rewriting.compose import compose
from polyc.poly.scop import Scop

Wiring = tuple[Scop, dict[str, str]]


def joined(name: str, parts: Sequence[Wiring], inputs: Sequence[str], outputs: Sequence[str]) -> OperatorScop:
    """`parts` run in order; `inputs` are the node's inputs by position, `outputs` its outputs."""
    scop = compose(name, parts, inputs, outputs)
    return OperatorScop(scop, tuple(enumerate(inputs)), tuple(outputs), False)


def extents(ctx: NodeContext, scop: Scop, array: str) -> tuple[Any, ...]:
    """The shape of one of the arrays of a Scop that was made for the node: numbers and formulas."""
    shape = array_shape(OperatorScop(scop, (), (), False, ctx.symbols), array)
    assert shape is not None  # the node's formulas are the only symbols
    return shape
