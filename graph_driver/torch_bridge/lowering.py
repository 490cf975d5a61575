"""What the functions of the ATen table work with: values, and a builder of nodes; and the table itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyc.graph_driver.building.construction import Construction, Foreign, Operand, Value
from polyc.graph_driver.graph.symbols import Symbols
from polyc.poly.dtypes import DType, f32, f64
from polyc.poly.records import dataclass

__all__ = [
    "OF_COMPLEX", "REAL", "TABLE", "Complex", "Foreign", "Lowered", "Lowering", "Operand", "Value", "aten",
    "aten_of_complex",
]  # fmt: skip

Lowered = Callable[..., Any]
TABLE: dict[str, Lowered] = {}
"""Functions of ATen operators by `name.overload`."""


OF_COMPLEX: dict[str, Lowered] = {}
"""Functions of ATen operators that take or give complex numbers, likewise."""


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers: its real and its imaginary parts, which are all that kernels know of it."""

    re: Value
    im: Value
    pairs: Value | None = None
    """Both side by side along a last axis, if they are there already."""

    @property
    def parts(self) -> tuple[Value, Value]:
        """Both."""
        return self.re, self.im

    @property
    def shape(self) -> tuple[Any, ...]:
        """Of complex numbers."""
        return self.re.shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.re.rank

    @property
    def size(self) -> Any:
        """Number of complex numbers."""
        return self.re.size

    @property
    def dtype(self) -> DType:
        """Of the parts."""
        return self.re.dtype


def aten(*names: str) -> Callable[[Lowered], Lowered]:
    """Register the decorated function for ATen operators, each as `name.overload`."""

    def register(function: Lowered) -> Lowered:
        TABLE.update({name: function for name in names})
        return function

    return register


def aten_of_complex(*names: str) -> Callable[[Lowered], Lowered]:
    """Register the decorated function for ATen operators where an operand or a result is complex. A complex operand is
    a `Complex`, or a number of Python's; `result` of the `Lowering` has the element type of the parts."""

    def register(function: Lowered) -> Lowered:
        OF_COMPLEX.update({name: function for name in names})
        return function

    return register


class Lowering(Construction):
    """A graph under construction, with the ATen node at hand."""

    def __init__(self, name: str, symbols: Symbols | None = None) -> None:
        super().__init__(name, symbols)
        self.kind = ""
        """Its operator, as `name.overload`."""
        self.strict = False
        """Whether nothing may run in eager mode, not even what torch does faster."""
        self.operand_memory: tuple[tuple[int, ...], int] | None = None
        """The strides and the offset, in elements, of its first operand in torch's memory."""
        self.result: tuple[DType, tuple[int, ...]] | None = None
        """What torch says of the first result of the ATen node at hand."""
        self.results: list[tuple[DType, tuple[int, ...]] | None] = []
        """What torch says of each of its results; None of one that nobody reads, for which None may be given."""


REAL = (f32, f64)
