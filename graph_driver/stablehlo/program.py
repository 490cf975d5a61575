"""What a text of StableHLO says: functions, operations, regions, with the line of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from polyc.poly.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

ELEMENTS: Mapping[str, DType] = {
    "f16": f16, "bf16": bf16, "f32": f32, "f64": f64, "i1": bool_, "i8": i8, "i16": i16, "i32": i32, "i64": i64,
    "si8": i8, "si16": i16, "si32": i32, "si64": i64, "ui8": u8, "ui16": u16, "ui32": u32, "ui64": u64,
}  # fmt: skip
"""MLIR's element types that polyc has."""


@dataclass(frozen=True)
class TensorType:
    """`tensor<2x3xf32>`: extents (None: `?`) and the element type as MLIR spells it."""

    shape: tuple[int | None, ...]
    element: str

    def __str__(self) -> str:
        return f"tensor<{'x'.join(['?' if n is None else str(n) for n in self.shape] + [self.element])}>"


@dataclass
class Region:
    """A block: its arguments with their types, and its operations."""

    arguments: list[tuple[str, TensorType]]
    operations: list[Operation]


@dataclass
class Operation:
    """`results = name(operands) {attributes} (regions)`; names of values are without `%`, `r#k` for one of several."""

    name: str
    line: int
    operands: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    types: list[TensorType] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)


@dataclass
class Function:
    """A function: its body's last operation is the `return`."""

    name: str
    line: int
    body: Region
    results: list[TensorType]


@dataclass
class Program:
    """The functions of a module; `source` names the text in messages."""

    source: str
    name: str
    functions: dict[str, Function]

    def refusal(self, line: int, text: str) -> ModelError:
        """The error of one line that names the place in the text."""
        return ModelError(f"{self.source}:{line}: {text}")

    def element(self, type_: TensorType, line: int) -> DType:
        """polyc's name of an element type. Raises `ModelError`: it has none."""
        if type_.element not in ELEMENTS:
            raise self.refusal(line, f"polyc has no element type {type_.element}")
        return ELEMENTS[type_.element]

    def shape(self, type_: TensorType, line: int) -> tuple[int, ...]:
        """The extents. Raises `ModelError`: one is not a number."""
        known = tuple(n for n in type_.shape if n is not None)
        if len(known) != len(type_.shape):
            raise self.refusal(line, f"{type_} has an extent that only a run knows: lower for sizes that are numbers")
        return known
