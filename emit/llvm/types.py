"""LLVM's names for polyc's types, values and constants.

Two forms per element type: in registers (`bool_` is `i1`) and in memory (`bool_` is one
byte). `bf16` is kept as `i16` bits: LLVM lowers `bfloat` to library calls on most CPUs.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np

from polyc.poly.dtypes import DType, i64
from polyc.poly.records import dataclass

_REGISTER = {"bool_": "i1", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}
_INTRINSIC_SUFFIX = {"i1": "i1", "half": "f16", "float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA name or constant `ref` of `dtype`, with `lanes` lanes (1 = scalar)."""

    ref: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> str:
        """Its LLVM type in registers."""
        return register_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        """`type ref`, as an operand."""
        return f"{self.type} {self.ref}"


def vector(element: str, lanes: int) -> str:
    """`element`, or a vector of it."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def scalar_type(dtype: DType) -> str:
    """The register type of one element."""
    name = dtype.name
    if name not in _REGISTER:
        _REGISTER[name] = f"i{dtype.bits}"
    return _REGISTER[name]


@cache
def register_type(dtype: DType, lanes: int = 1) -> str:
    """The type of a value of `dtype` in registers."""
    return vector(scalar_type(dtype), lanes)


@cache
def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The type of `dtype` in memory."""
    return vector("i8" if dtype.kind == "bool" else scalar_type(dtype), lanes)


def suffix(element: str, lanes: int = 1) -> str:
    """How intrinsic names spell a type: `f32`, `v8f32`, `v4i64`."""
    short = _INTRINSIC_SUFFIX.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(value: Any, dtype: DType) -> str:
    """A constant of `dtype` as LLVM text (floats in hexadecimal: exact)."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_int:
        return str(int(value))
    bits = np.asarray(value).astype(dtype.np)
    if dtype.name == "bf16":
        return str(int(bits.view(np.uint16)))
    if dtype.name == "f16":
        return f"0xH{int(bits.view(np.uint16)):04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(bits)))[0]:016X}"


def splat(element: str, text: str, lanes: int) -> str:
    """A constant in every lane."""
    return text if lanes == 1 else f"splat ({element} {text})"


def constant(value: Any, dtype: DType, lanes: int = 1) -> Value:
    """A `Const` as a value."""
    if dtype is i64 and lanes == 1:  # subscripts: most of all constants
        return Value(str(int(value)), i64)
    key = repr(value), dtype, lanes  # (0.0 and -0.0 are equal, NaN is not)
    found = _CONSTANTS.get(key)
    if found is None:
        if len(_CONSTANTS) >= MOST_CONSTANTS:
            _CONSTANTS.clear()
        text = splat(scalar_type(dtype), literal(value, dtype), lanes)
        found = _CONSTANTS[key] = Value(text, dtype, lanes)
    return found


MOST_CONSTANTS = 4096
_CONSTANTS: dict[tuple[str, DType, int], Value] = {}
