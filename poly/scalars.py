"""Run-time scalars: what a number of Python or NumPy may become without losing its value."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from polyc.poly.dtypes import DType
from polyc.poly.errors import ArgumentError
from polyc.poly.words import article, counted


def scalar(value: Any, dtype: DType, what: str) -> Any:
    """`value` as a NumPy scalar of `dtype`; `what` starts the message of a refusal.

    The rule is that of NumPy's casting="same_value", with rounding allowed: integers and bools take
    whatever equals one of their values (3.0 and True fit `i32`, 1 fits `bool_`, 2.7 and 2**31 do not), floats take
    every real number, rounded to their precision, unless a finite number would become infinite.

    Raises:
        ArgumentError: the value is no real number (arrays with axes are none), or the dtype has none like it.
    """
    number, wanted = _number(value), f"{what} is {article(dtype.name)} scalar"
    if isinstance(value, np.ndarray) and value.ndim:
        raise ArgumentError(f"{wanted}, what is given has {counted(value.ndim, 'axis', 'axes')}")
    if number is None:
        raise ArgumentError(f"{wanted}, which {_shown(value)} ({type(value).__name__}) is not")
    found = _float(number, dtype) if dtype.is_float else _exact(number, dtype)
    if found is None:
        raise ArgumentError(f"{wanted}, which cannot hold {_shown(value)}{_range(dtype)}")
    return found


def _number(value: Any) -> bool | int | float | None:
    """The number as Python has it, exactly; None when it is no real number."""
    if isinstance(value, (np.generic, np.ndarray, ml_dtypes.bfloat16)):
        array = np.asarray(value)
        if array.ndim or array.dtype.kind in "cOSUmMT":
            return None
        if array.dtype.kind == "V" and array.dtype != np.dtype(ml_dtypes.bfloat16):
            return None
        if array.dtype.kind in "fV":
            return float(array)
        return bool(array) if array.dtype.kind == "b" else int(array)
    if isinstance(value, (bool, int, float)):
        return value
    for convert in ("__index__", "__float__"):
        if hasattr(type(value), convert) and not isinstance(value, (str, bytes, complex)):
            try:
                return value.__index__() if convert == "__index__" else float(value)
            except (TypeError, ValueError):
                continue
    return None


def _exact(number: float, dtype: DType) -> Any:
    if isinstance(number, float) and not (math.isfinite(number) and number == int(number)):
        return None
    low, high = (0, 1) if dtype.kind == "bool" else (int(np.iinfo(dtype.np).min), int(np.iinfo(dtype.np).max))
    return dtype.np.type(int(number)) if low <= int(number) <= high else None


def _float(number: float, dtype: DType) -> Any:
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(float(number)).astype(dtype.np)[()]
    except OverflowError:
        return None
    return None if math.isfinite(number) and not math.isfinite(float(found)) else found


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "an integer of too many digits"
    return text if len(text) <= 40 else f"{text[:37]}..."


def _range(dtype: DType) -> str:
    if dtype.is_float:
        return f" (its largest number is {float(ml_dtypes.finfo(dtype.np).max):.6g})"
    if dtype.kind == "bool":
        return " (it holds True and False)"
    info = np.iinfo(dtype.np)
    return f" (it holds the integers from {info.min} to {info.max})"
