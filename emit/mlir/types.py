"""MLIR's names for polyc's types, values and constants.

Integers are signless: whether a number has a sign is said by operations. `bool_` is `i1` in registers and a byte (`i8`)
in memory, as NumPy has it.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from polyc.poly.dtypes import DType
from polyc.poly.records import dataclass

_SCALAR = {"bool_": "i1", "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64"}


@dataclass(frozen=True, slots=True)
class Value:
    """The SSA name `ref` of a value of `dtype` with `lanes` lanes (1 = scalar)."""

    ref: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> str:
        """Its MLIR type."""
        return register_type(self.dtype, self.lanes)


def vector(element: str, lanes: int) -> str:
    """`element`, or a vector of it."""
    return element if lanes == 1 else f"vector<{lanes}x{element}>"


def scalar_type(dtype: DType) -> str:
    """The type of one value in a register."""
    return _SCALAR.get(dtype.name, f"i{dtype.bits}")


def register_type(dtype: DType, lanes: int = 1) -> str:
    """The type of a value of `dtype` in registers."""
    return vector(scalar_type(dtype), lanes)


def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The type of `dtype` in memory."""
    return vector("i8" if dtype.kind == "bool" else scalar_type(dtype), lanes)


def literal(value: Any, dtype: DType) -> str:
    """A constant of `dtype` as MLIR writes it; floats are exact: decimal where that has all digits, else their bits."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_int:
        whole = int(value)
        return str(whole - (1 << dtype.bits) if whole >> (dtype.bits - 1) > 0 else whole)
    exact = np.asarray(value).astype(dtype.np)
    number = float(exact)
    if math.isfinite(number):
        text = repr(number)
        return text if "." in text else re.sub(r"^(-?\d+)", r"\1.0", text)
    bits = int(exact.view(f"u{dtype.bytes}"))
    return f"0x{bits:0{2 * dtype.bytes}X}"
