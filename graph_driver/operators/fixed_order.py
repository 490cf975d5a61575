"""Operators whose sums are added up in the order that their programs have: the same bits wherever they run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from polyc.graph_driver.operators.context import Builder, OperatorScop, RowBlocks
from polyc.graph_driver.operators.pieces import Lookup
from polyc.poly.reduction import fixed_order
from polyc.poly.scop import Scop


def in_fixed_order(lookup: Lookup) -> Lookup:
    """The same operators, each as a program of fixed order, in all of its forms."""

    def found(domain: str, op_type: str) -> Builder | None:
        builder = lookup(domain, op_type)
        return None if builder is None else lambda context: _fixed(builder(context))

    return found


def _fixed(operator: OperatorScop) -> OperatorScop:
    over, rows = operator.over, operator.in_rows

    def in_shape(shape: tuple[Any, ...]) -> Scop | None:
        form = None if over is None else over(shape)
        return None if form is None else fixed_order(form)

    in_rows = None if rows is None else RowBlocks(lambda n: _fixed(rows.of(n)), rows.copies)
    scop = fixed_order(operator.scop)
    return replace(operator, scop=scop, over=None if over is None else in_shape, in_rows=in_rows)
