"""Sizes in FX graphs: symbolic ones have the values of a call, or stay formulas of polyc's."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import sympy
import torch

from polyc.graph_driver.graph.size import Size, SizeError, evaluate
from polyc.graph_driver.graph.symbols import Symbols
from polyc.poly.errors import ModelError

SMALLEST = 2
"""torch takes sizes of 0 and 1 as numbers."""


class Sizes:
    """Values of torch's symbolic sizes, bound by the arguments of a call."""

    def __init__(self) -> None:
        self._values: dict[Any, int] = {}

    def bind(self, size: Any, value: int) -> None:
        """What a symbolic size of an input is in this call; formulas bind nothing."""
        if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
            self._values[size.node.expr] = sympy.Integer(int(value))

    def number(self, size: Any) -> int:
        """A size as a number. Raises `ModelError`: it follows from data."""
        if isinstance(size, int):
            return size
        found = size.node.expr.xreplace(self._values)
        if not found.is_number:
            raise ModelError(f"the size {size.node.expr} of a PyTorch graph is decided by data")
        return int(found)

    def numbers(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Several."""
        return tuple(self.number(n) for n in sizes)


class Formulas(Sizes):
    """torch's symbolic sizes as polyc's: one graph for all of their values.

    torch takes sizes of 0 and 1 as numbers, so symbols are 2 or more; sizes that are equal in the first call are one
    symbol already.
    """

    def __init__(self) -> None:
        super().__init__()
        self.symbols = Symbols()
        self._formulas: dict[Any, Size] = {}

    def bind(self, size: Any, value: int) -> None:
        """Another symbol, represented by its value in this call."""
        if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
            expr = size.node.expr
            if expr not in self._formulas:
                self._formulas[expr] = self.symbols.new(str(expr), SMALLEST, None, int(value))

    def number(self, size: Any) -> Any:
        """A size as a number or a formula. Raises `SizeError`: polyc's formulas have no such function."""
        if isinstance(size, int):
            return size
        return self._formula(size.node.expr)

    def _formula(self, expr: Any) -> Any:
        if expr.is_Integer:
            return int(expr)
        if expr in self._formulas:
            return self._formulas[expr]
        parts = [self._formula(a) for a in expr.args]
        if expr.is_Add:
            return sum(parts[1:], parts[0])
        if expr.is_Mul:
            return prod(parts[1:], start=parts[0])
        if expr.is_Pow and isinstance(parts[1], int) and parts[1] >= 0:
            return prod([parts[0]] * parts[1])
        if type(expr).__name__ == "FloorDiv":
            return parts[0] // parts[1]
        raise SizeError(f"the size {expr} is no formula of polyc's")


def dense_order(shape: Sequence[Any], stride: Sequence[Any]) -> list[int] | None:
    """The axes from the slowest to the fastest of a tensor that fills its memory without gaps; None for others. Of
    formulas the order is that at the representative sizes, and holds for all sizes."""
    if 0 in shape:
        return list(range(len(shape)))
    steps = [typical(n) for n in stride]
    order = _unit_axes_in_place(sorted(range(len(shape)), key=lambda k: (-steps[k], k)), shape)
    step: Any = 1
    for k in reversed(order):
        if shape[k] != 1 and stride[k] != step:
            return None
        step *= shape[k]
    return order


def typical(size: Any) -> int:
    """A size, or the representative value of a formula."""
    if not isinstance(size, Size):
        return int(size)
    assert isinstance(size.home, Symbols)
    return evaluate(size, size.home.typical)


def _unit_axes_in_place(order: list[int], shape: Sequence[Any]) -> list[int]:
    """Axes of extent 1, whose stride says nothing, where they stand in the shape as far as the others allow."""
    others = [k for k in order if shape[k] != 1]
    units = [k for k in range(len(shape)) if shape[k] == 1]
    if others == sorted(others):
        return list(range(len(shape)))
    return units + others
