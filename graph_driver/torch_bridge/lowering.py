"""What the functions of the ATen table work with: values, and a builder of nodes; and the table itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyc.graph_driver.building.construction import Construction, Foreign, Operand, Value
from polyc.graph_driver.graph.symbols import Symbols
from polyc.poly.dtypes import DType, f32, f64

__all__ = ["REAL", "TABLE", "Foreign", "Lowered", "Lowering", "Operand", "Value", "aten"]

Lowered = Callable[..., Any]
TABLE: dict[str, Lowered] = {}
"""Functions of ATen operators by `name.overload`."""


def aten(*names: str) -> Callable[[Lowered], Lowered]:
    """Register the decorated function for ATen operators, each as `name.overload`."""

    def register(function: Lowered) -> Lowered:
        TABLE.update({name: function for name in names})
        return function

    return register


class Lowering(Construction):
    """A graph under construction, with the ATen node at hand."""

    def __init__(self, name: str, symbols: Symbols | None = None) -> None:
        super().__init__(name, symbols)
        self.kind = ""
        """Its operator, as `name.overload`."""
        self.operand_memory: tuple[tuple[int, ...], int] | None = None
        """The strides and the offset, in elements, of its first operand in torch's memory."""
        self.result: tuple[DType, tuple[int, ...]] | None = None
        """What torch says of the first result of the ATen node at hand."""
        self.results: list[tuple[DType, tuple[int, ...]] | None] = []
        """What torch says of each of its results; None of one that nobody reads, for which None may be given."""


REAL = (f32, f64)
