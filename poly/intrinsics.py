"""The one table of intrinsics shared by the plain-Python run, the interpreter and all emitters.

`numpy` is the meaning; `ulp` the largest error polyc's own vector implementation may have
in f32 and f64 (0 = correctly rounded / exact).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.poly.dtypes import DType, f32, i32
from polyc.poly.records import dataclass


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """`arity` arguments of one dtype; `result` is `same` or `bool`.

    `internal` ones are made by `emit` only: no DSL function has their name. `only` is the one dtype of those that
    are not defined on all floats.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    ulp: float
    result: str = "same"
    integers: bool = False  # also defined on integer dtypes
    internal: bool = False
    only: DType | None = None


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return x.dtype.type(1) / (x.dtype.type(1) + np.exp(-x)) if hasattr(x, "dtype") else 1.0 / (1.0 + np.exp(-x))


def _erf(x: Any) -> Any:
    import math

    x = np.asarray(x)
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)[()]


def _fma(a: Any, b: Any, c: Any) -> Any:
    import ctypes
    import ctypes.util

    lib = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
    name, ct = ("fmaf", ctypes.c_float) if np.asarray(a).dtype == np.float32 else ("fma", ctypes.c_double)
    fn = getattr(lib, name)
    fn.restype, fn.argtypes = ct, [ct, ct, ct]
    return np.asarray(a).dtype.type(fn(float(a), float(b), float(c)))


def _bitcast(x: Any) -> Any:
    """The same bits as another type: i32 <-> f32, i64 <-> f64 (by the Call's dtype)."""
    x = np.asarray(x)
    return x.view({"float32": "int32", "int32": "float32", "float64": "int64", "int64": "float64"}[x.dtype.name])[()]


def _exp_nonpositive(x: Any) -> Any:
    return np.exp(x)


def _halves(x: Any) -> tuple[Any, Any]:
    """The two i16 in an i32: the low one, the high one."""
    x = np.asarray(x).astype(np.int32)
    return (x << np.int32(16)) >> np.int32(16), x >> np.int32(16)


def _dot_pairs(x: Any, y: Any) -> Any:
    (a, b), (c, d) = _halves(x), _halves(y)
    with np.errstate(over="ignore"):  # -2^15 four times: 2^31 wraps
        return (a * c + b * d)[()]


def _words(x: Any) -> tuple[Any, Any]:
    """The two bf16 in an f32 word, as f32: the one in the low half, the one in the high half."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return (bits << np.uint32(16)).view(np.float32), (bits & np.uint32(0xFFFF0000)).view(np.float32)


def _each_fma(a: Any, b: Any, c: Any) -> Any:
    return np.vectorize(_fma, otypes=[np.float32])(*(np.asarray(x, np.float32) for x in (a, b, c)))[()]


def _dot_bf16(x: Any, y: Any) -> Any:
    (a, b), (c, d) = _words(x), _words(y)
    with np.errstate(all="ignore"):
        return _each_fma(a, c, b * d)


def _dot_bf16_add(x: Any, y: Any, z: Any) -> Any:
    (a, b), (c, d) = _words(x), _words(y)
    return _each_fma(a, c, _each_fma(b, d, z))


def _pack_bf16(x: Any, y: Any) -> Any:
    low, high = (np.asarray(v, np.float32).view(np.uint32) for v in (x, y))
    return ((low >> np.uint32(16)) | (high & np.uint32(0xFFFF0000))).view(np.float32)[()]


def _widen_pairs(x: Any) -> Any:
    x = np.asarray(x).astype(np.int32)
    low, high = (x << np.int32(24)) >> np.int32(24), (x << np.int32(16)) >> np.int32(24)
    return ((low & np.int32(0xFFFF)) | (high << np.int32(16)))[()]


def _dot_bytes(x: Any, y: Any) -> Any:
    codes, signed = np.asarray(x).astype(np.int32), np.asarray(y).astype(np.int32)
    products = (
        ((codes >> np.int32(shift)) & np.int32(255)) * (signed << np.int32(24 - shift) >> np.int32(24))
        for shift in (0, 8, 16, 24)
    )
    return np.asarray(sum(products, np.zeros((), np.int32)))[()]


def _dot_bytes_add(x: Any, y: Any, z: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.add(np.asarray(z, np.int32), _dot_bytes(x, y))[()]


def _position(j: Any, size: Any) -> Any:
    return np.maximum(np.minimum(j, size - 1), 0)


_ALL = [
    Intrinsic("exp", 1, np.exp, 4),
    Intrinsic("log", 1, np.log, 4),
    Intrinsic("log1p", 1, np.log1p, 4),
    Intrinsic("expm1", 1, np.expm1, 4),
    Intrinsic("sqrt", 1, np.sqrt, 0),
    Intrinsic("rsqrt", 1, lambda x: np.asarray(x).dtype.type(1) / np.sqrt(x), 2),
    Intrinsic("sin", 1, np.sin, 4),
    Intrinsic("cos", 1, np.cos, 4),
    Intrinsic("tan", 1, np.tan, 4),
    Intrinsic("asin", 1, np.arcsin, 4),
    Intrinsic("acos", 1, np.arccos, 4),
    Intrinsic("atan", 1, np.arctan, 4),
    Intrinsic("sinh", 1, np.sinh, 4),
    Intrinsic("cosh", 1, np.cosh, 4),
    Intrinsic("tanh", 1, np.tanh, 4),
    Intrinsic("erf", 1, _erf, 4),
    Intrinsic("sigmoid", 1, _sigmoid, 4),
    Intrinsic("floor", 1, np.floor, 0),
    Intrinsic("ceil", 1, np.ceil, 0),
    Intrinsic("round", 1, np.rint, 0),  # half to even
    Intrinsic("trunc", 1, np.trunc, 0),
    Intrinsic("abs", 1, np.abs, 0, integers=True),
    Intrinsic("pow", 2, np.power, 4),
    Intrinsic("fma", 3, _fma, 0),
    # A subscript that must be in 0..size-1: another is an error where accesses are checked, else the nearest counts.
    Intrinsic("position", 2, _position, 0, integers=True),
    Intrinsic("isnan", 1, np.isnan, 0, result="bool"),
    Intrinsic("isinf", 1, np.isinf, 0, result="bool"),
    # Integer products two at a time: an i32 holds two i16 (or, for widen_pairs, two i8 in its low half).
    Intrinsic("dot_pairs", 2, _dot_pairs, 0, integers=True, only=i32),
    Intrinsic("widen_pairs", 1, _widen_pairs, 0, integers=True, only=i32),
    # Four at a time: the bytes of the first i32 count from 0 to 255, those of the second from -128 to 127. The second
    # intrinsic is `z + dot_bytes(x, y)`.
    Intrinsic("dot_bytes", 2, _dot_bytes, 0, integers=True, only=i32),
    Intrinsic("dot_bytes_add", 3, _dot_bytes_add, 0, integers=True, internal=True, only=i32),
    # Products of bf16 two at a time: an f32 word holds two bf16; the products are exact, their sums are f32.
    # The second is `z + dot_bf16(x, y)` in two steps, the high halves first. Machines with an instruction for it may
    # order and round otherwise and take denormal numbers as 0 (docs/models.md).
    Intrinsic("dot_bf16", 2, _dot_bf16, 0, only=f32),
    Intrinsic("dot_bf16_add", 3, _dot_bf16_add, 0, internal=True, only=f32),
    Intrinsic("pack_bf16", 2, _pack_bf16, 0, only=f32),  # of two f32 that are bf16, the low half first
    # `Call("bitcast", (x,), dtype)`: the bits of x as the Call's dtype; i32 <-> f32 and i64 <-> f64.
    Intrinsic("bitcast", 1, _bitcast, 0, result="cast", integers=True, internal=True),
    Intrinsic("exp_nonpositive", 1, _exp_nonpositive, 4, internal=True),  # of an argument <= 0, or NaN
]

TABLE: dict[str, Intrinsic] = {i.name: i for i in _ALL}
