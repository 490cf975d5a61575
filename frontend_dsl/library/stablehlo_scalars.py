"""Scalar functions with StableHLO's meaning, in the DSL's language; `of(name, type)` finds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyc.frontend_dsl import abs, exp, expm1, floor, isinf, isnan, log, log1p, max, min, pow, sqrt, where
from polyc.frontend_dsl.library import scalar
from polyc.frontend_dsl.library.scalar import made_once
from polyc.poly.dtypes import BY_NAME, DType

Scalar = Callable[..., Any]


def _clamp(low: Any, x: Any, high: Any) -> Any:
    return min(max(x, low), high)


def _square_root(a: Any) -> Any:
    return sqrt(a)


def _exponential(a: Any) -> Any:
    return exp(a)


def _logarithm(a: Any) -> Any:
    return log(a)


def _log_plus_one(a: Any) -> Any:
    return log1p(a)


def _exponential_minus_one(a: Any) -> Any:
    return expm1(a)


def _reciprocal_root(a: Any) -> Any:
    return 1 / sqrt(a)


def _finite(a: Any) -> Any:
    return not (isnan(a) or isinf(a))


def _half_away(a: Any) -> Any:
    """Rounded to the nearest integer, halves away from 0 (0.5 less the smallest step does not become 1)."""
    return a if floor(a) == a else (floor(a) + (1 if a - floor(a) >= 0.5 else 0) if a > 0
                                    else -floor(-a) - (1 if -a - floor(-a) >= 0.5 else 0))  # fmt: skip


def _cube_root(a: Any) -> Any:
    return where(a < 0, -pow(abs(a), 1.0 / 3.0), pow(abs(a), 1.0 / 3.0))


@made_once
def _to(dtype: DType) -> Scalar:
    def converted(a: Any) -> Any:
        return dtype(a)

    return converted


def _truth(a: Any) -> Any:
    return a != 0


@made_once
def _shift_left(dtype: DType) -> Scalar:
    """0 from as many bits on as there are."""
    bits = dtype.bits

    def shift_left(a: Any, n: Any) -> Any:
        return a << (n & (bits - 1)) if 0 <= n < bits else dtype(0)

    return shift_left


@made_once
def _shift_right_arithmetic(dtype: DType) -> Scalar:
    """The sign from as many bits on as there are (the count as an unsigned number)."""
    bits = dtype.bits

    def shift_right(a: Any, n: Any) -> Any:
        return a >> (n & (bits - 1)) if 0 <= n < bits else (dtype(0) if a >= 0 else ~dtype(0))

    return shift_right


@made_once
def _shift_right_logical(dtype: DType) -> Scalar:
    """Zeros come in; 0 from as many bits on as there are."""
    bits = dtype.bits
    unsigned = BY_NAME[f"u{bits}"]

    def shift_right(a: Any, n: Any) -> Any:
        return dtype(unsigned(a) >> unsigned(n & (bits - 1))) if 0 <= n < bits else dtype(0)

    return shift_right


@made_once
def _bits_set(dtype: DType) -> Scalar:
    """How many bits are 1: pairs, fours, bytes, then the sum of the bytes."""
    bits = dtype.bits
    U = BY_NAME[f"u{bits}"]
    ones = sum(1 << k for k in range(0, bits, 8))

    def pairs(a: Any) -> Any:
        return a - ((a >> U(1)) & U(0x55 * ones))

    def fours(a: Any) -> Any:
        return (a & U(0x33 * ones)) + ((a >> U(2)) & U(0x33 * ones))

    def eights(a: Any) -> Any:
        return (a + (a >> U(4))) & U(0x0F * ones)

    def bits_set(a: Any) -> Any:
        return dtype((eights(fours(pairs(U(a)))) * U(ones)) >> U(bits - 8))

    return bits_set


_EVERY: Mapping[str, Scalar] = {"select": scalar.choose, "negate": scalar.negative, "clamp": _clamp}
_BOOLS: Mapping[str, Scalar] = {
    "add": scalar.either, "maximum": scalar.either, "or": scalar.either, "multiply": scalar.both,
    "minimum": scalar.both, "and": scalar.both, "xor": scalar.differ, "not": scalar.negation,
}  # fmt: skip
_NUMBERS: Mapping[str, Scalar] = {"add": scalar.add, "subtract": scalar.sub, "multiply": scalar.mul}
_INTEGERS: Mapping[str, Scalar] = {
    "and": scalar.bit_and, "or": scalar.bit_or, "xor": scalar.bit_xor, "not": scalar.bit_not,
    "maximum": scalar.maximum_whole, "minimum": scalar.minimum_whole
}  # fmt: skip
_FLOATS: Mapping[str, Scalar] = {
    "divide": scalar.divide, "maximum": scalar.maximum, "minimum": scalar.minimum, "abs": scalar.absolute,
    "sqrt": _square_root, "exponential": _exponential, "log": _logarithm, "log_plus_one": _log_plus_one,
    "exponential_minus_one": _exponential_minus_one, "rsqrt": _reciprocal_root, "is_finite": _finite,
    "round_nearest_afz": _half_away, "cbrt": _cube_root,
}  # fmt: skip
_BY_TYPE: Mapping[str, Callable[[DType], Scalar]] = {
    "shift_left": _shift_left, "shift_right_arithmetic": _shift_right_arithmetic,
    "shift_right_logical": _shift_right_logical, "popcnt": _bits_set,
}  # fmt: skip
COMPARISONS: Mapping[str, Scalar] = {
    "EQ": scalar.equal, "NE": scalar.differ, "LT": scalar.less, "LE": scalar.less_equal,
    "GT": scalar.greater, "GE": scalar.greater_equal
}  # fmt: skip


def of(name: str, dtype: DType) -> Scalar | None:
    """The function of an operation (without `stablehlo.`) on operands of a type; None: there is none."""
    if name in _EVERY:
        return _EVERY[name]
    if dtype.kind == "bool":
        return _BOOLS.get(name)
    if name in _NUMBERS:
        return _NUMBERS[name]
    if dtype.is_float:
        return _FLOATS.get(name)
    return _BY_TYPE[name](dtype) if name in _BY_TYPE else _INTEGERS.get(name)


def conversion(dtype: DType) -> Scalar:
    """From any type to `dtype`; to truth values: whether it is not 0."""
    return _truth if dtype.kind == "bool" else _to(dtype)
