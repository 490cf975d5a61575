"""Sizes in FX graphs as numbers: symbolic ones have the values of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from polyc.poly.errors import ModelError


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


def dense_order(shape: Sequence[int], stride: Sequence[int]) -> list[int] | None:
    """The axes from the slowest to the fastest of a tensor that fills its memory without gaps; None for others."""
    order = sorted(range(len(shape)), key=lambda k: (-stride[k], k))
    if 0 in shape:
        return list(range(len(shape)))
    order = _unit_axes_in_place(order, shape)
    step = 1
    for k in reversed(order):
        if shape[k] != 1 and stride[k] != step:
            return None
        step *= shape[k]
    return order


def _unit_axes_in_place(order: list[int], shape: Sequence[int]) -> list[int]:
    """Axes of extent 1, whose stride says nothing, where they stand in the shape as far as the others allow."""
    others = [k for k in order if shape[k] != 1]
    units = [k for k in range(len(shape)) if shape[k] == 1]
    if others == sorted(others):
        return list(range(len(shape)))
    return units + others
