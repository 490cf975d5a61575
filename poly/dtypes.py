"""Element types: one table shared by the DSL, the interpreter and all emitters.

A `DType` is also the DSL's annotation and cast: `f32[M, K]` makes an `ArrayType`,
`f32(x)` converts a scalar when the DSL runs as plain Python.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import ml_dtypes
import numpy as np

from polyc.poly.records import dataclass

NumpyDType = np.dtype[Any]
Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type: `bits` wide, `np` its NumPy dtype. There is one object for each, which equals itself alone."""

    name: str
    kind: Kind
    bits: int

    @property
    def np(self) -> NumpyDType:
        """The NumPy dtype with the same representation."""
        return _NUMPY[self.name]

    @property
    def dtype(self) -> NumpyDType:
        """The same, under the name that NumPy looks for: `X.dtype == f32`, `np.zeros(3, f32)`."""
        return _NUMPY[self.name]

    @property
    def bytes(self) -> int:
        """Storage size in bytes (a `bool_` takes one)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type, of any width."""
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """Signed or unsigned integer (not bool)."""
        return self.kind in ("int", "uint")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name  # by reference: there is one object for each

    def __call__(self, value: Any) -> Any:
        """Convert a Python or NumPy value, as C and NumPy `astype` do."""
        return np.asarray(value).astype(self.np)[()]

    def __getitem__(self, shape: Any) -> ArrayType:
        """`f32[M, K]`, `f32[...]` (any rank), `f32[()]` (rank 0)."""
        return ArrayType(self, shape if isinstance(shape, tuple) else (shape,))


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The annotation `f32[M, K]`: shape entries are ints, `Dim` expressions or `...`."""

    dtype: DType
    shape: tuple[Any, ...]


bool_ = DType("bool_", "bool", 1)
i8 = DType("i8", "int", 8)
u8 = DType("u8", "uint", 8)
i16 = DType("i16", "int", 16)
u16 = DType("u16", "uint", 16)
i32 = DType("i32", "int", 32)
u32 = DType("u32", "uint", 32)
i64 = DType("i64", "int", 64)
u64 = DType("u64", "uint", 64)
f16 = DType("f16", "float", 16)
bf16 = DType("bf16", "float", 16)
f32 = DType("f32", "float", 32)
f64 = DType("f64", "float", 64)

ALL: tuple[DType, ...] = (bool_, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
_NUMPY: dict[str, np.dtype[Any]] = {
    "bool_": np.dtype(np.bool_),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
} | {d.name: np.dtype(("int" if d.kind == "int" else "uint") + str(d.bits)) for d in ALL if d.is_int}
_FROM_NUMPY: dict[np.dtype[Any], DType] = {v: BY_NAME[k] for k, v in _NUMPY.items()}
KNOWN_TYPES = f"element types are {', '.join(BY_NAME)}"


class NoType:
    """A name that looks like an element type and is none, so that an operator which uses it says what there is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __getitem__(self, shape: Any) -> NoType:
        return self

    def __reduce__(self) -> str:
        return self.name


c64, c128 = NoType("c64"), NoType("c128")


def like_a_type(name: str) -> bool:
    """Whether a name that means nothing here looks like an element type (`c64`, `float32`)."""
    return (
        re.fullmatch(r"(b|bf|c|f|fp|i|s|u|bool|bfloat|complex|float|int|uint)(8|16|32|64|80|128|256)(_t)?", name)
        is not None
    )


def missing_type(name: str) -> str:
    """The hint for a name that means nothing: which element types there are, "" where none seems to be meant."""
    return KNOWN_TYPES if like_a_type(name) and name not in BY_NAME else ""


def from_numpy(dtype: Any) -> DType:
    """The `DType` of a NumPy dtype; `KeyError` when polyc has none (complex, strings, ...)."""
    return _FROM_NUMPY[np.dtype(dtype)]


def promote(a: DType, b: DType) -> DType:
    """The common type of two array element types, by NumPy's rules."""
    if a == b:
        return a
    if bf16 in (a, b):
        # ml_dtypes' bfloat16 does not take part in np.promote_types with every type.
        other = b if a == bf16 else a
        if other == f16:
            return f32
        if other.is_float:
            return other
        return bf16 if other.bits <= 8 else f32 if other.bits == 16 else f64
    return from_numpy(np.promote_types(a.np, b.np))
