"""Operators of the reference interpreter.

Scalars: integers are Python ints kept in the range of their type, booleans Python bools,
floats NumPy scalars. Vectors are NumPy arrays of the element type.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from polyc.poly.dtypes import DType, bool_, f32, f64, i64
from polyc.poly.expr import COMPARISONS
from polyc.poly.intrinsics import TABLE

Op = Callable[..., Any]
Run = Callable[[dict[str, Any]], Any]


def wrapper(dtype: DType) -> Callable[[int], int]:
    """Brings a Python int into the range of `dtype` (two's complement)."""
    bits = dtype.bits
    size, half = 1 << bits, 1 << (bits - 1)
    if dtype.kind == "uint":
        return lambda x: x & (size - 1)

    def signed(x: int) -> int:
        if -half <= x < half:
            return x
        return ((x + half) & (size - 1)) - half

    return signed


def to_scalar(dtype: DType) -> Callable[[Any], Any]:
    """From a NumPy scalar to the interpreter's representation."""
    if dtype == bool_:
        return bool
    if dtype.is_int:
        return int
    return dtype.np.type


def binary(op: str, operand: DType, vector: bool) -> Op:
    """The function of a `Binary` node over operands of type `operand`."""
    if op in COMPARISONS:
        return _compare(op, vector)
    if op == "min":
        return (lambda a, b: np.where(b < a, b, a)) if vector else (lambda a, b: b if b < a else a)
    if op == "max":
        return (lambda a, b: np.where(b > a, b, a)) if vector else (lambda a, b: b if b > a else a)
    if vector:
        return _VECTOR[op]
    if operand.is_float:
        return _VECTOR[op]
    if operand == bool_:
        return _BOOL[op]
    return _integer(op, operand)


def applied(op: str, operand: DType, vector: bool, a: Run, b: Run) -> Run:
    """A `Binary` node over what `a` and `b` find: in one closure where it is asked often."""
    if not vector:
        if op in _SHORT:
            return _SHORT[op](a, b)
        if op in COMPARISONS:
            return _COMPARED[op](a, b)
        if operand == i64 and op in _WIDE:
            return _WIDE[op](a, b)
    if op in _FLOATS and (vector or operand.is_float):
        return _FLOATS[op](a, b)
    fn = binary(op, operand, vector)
    return lambda env: fn(a(env), b(env))


_SHORT: dict[str, Callable[[Run, Run], Run]] = {
    "and": lambda a, b: lambda env: a(env) and b(env),
    "or": lambda a, b: lambda env: a(env) or b(env),
}
_COMPARED: dict[str, Callable[[Run, Run], Run]] = {
    "==": lambda a, b: lambda env: bool(a(env) == b(env)),
    "!=": lambda a, b: lambda env: bool(a(env) != b(env)),
    "<": lambda a, b: lambda env: bool(a(env) < b(env)),
    "<=": lambda a, b: lambda env: bool(a(env) <= b(env)),
    ">": lambda a, b: lambda env: bool(a(env) > b(env)),
    ">=": lambda a, b: lambda env: bool(a(env) >= b(env)),
}
_FLOATS: dict[str, Callable[[Run, Run], Run]] = {
    "+": lambda a, b: lambda env: a(env) + b(env),
    "-": lambda a, b: lambda env: a(env) - b(env),
    "*": lambda a, b: lambda env: a(env) * b(env),
    "/": lambda a, b: lambda env: a(env) / b(env),
}
_LEAST, _MOST, _ALL = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1


def _within(x: int) -> int:
    """An i64 in two's complement."""
    return x if _LEAST <= x <= _MOST else ((x - _LEAST) & _ALL) + _LEAST


_WIDE: dict[str, Callable[[Run, Run], Run]] = {
    "+": lambda a, b: lambda env: x if _LEAST <= (x := a(env) + b(env)) <= _MOST else _within(x),
    "-": lambda a, b: lambda env: x if _LEAST <= (x := a(env) - b(env)) <= _MOST else _within(x),
    "*": lambda a, b: lambda env: x if _LEAST <= (x := a(env) * b(env)) <= _MOST else _within(x),
}


def _compare(op: str, vector: bool) -> Op:
    fn = {
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }[op]
    return fn if vector else lambda a, b: bool(fn(a, b))


_VECTOR: dict[str, Op] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.power,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}
_BOOL: dict[str, Op] = {
    "&": lambda a, b: a and b,
    "|": lambda a, b: a or b,
    "^": lambda a, b: a != b,
    "+": lambda a, b: a or b,
    "*": lambda a, b: a and b,
}


def _integer(op: str, dtype: DType) -> Op:
    wrap = wrapper(dtype)
    bits = dtype.bits
    table: dict[str, Op] = {
        "+": lambda a, b: wrap(a + b),
        "-": lambda a, b: wrap(a - b),
        "*": lambda a, b: wrap(a * b),
        "//": lambda a, b: wrap(a // b) if b else 0,  # NumPy's meaning of a division by zero
        "%": lambda a, b: wrap(a % b) if b else 0,
        "**": lambda a, b: wrap(a**b),
        "&": lambda a, b: a & b,
        "|": lambda a, b: a | b,
        "^": lambda a, b: a ^ b,
        "<<": lambda a, b: wrap(a << b) if 0 <= b < bits else 0,
        ">>": lambda a, b: a >> b if 0 <= b < bits else (-1 if a < 0 else 0),
    }
    return table[op]


def unary(op: str, dtype: DType, vector: bool) -> Op:
    """The function of a `Unary` node."""
    if op == "not" or (op == "~" and dtype == bool_):
        return np.logical_not if vector else lambda a: not a
    if vector or dtype.is_float:
        return (lambda a: -a) if op == "neg" else np.invert
    wrap = wrapper(dtype)
    return (lambda a: wrap(-a)) if op == "neg" else (lambda a: wrap(~a))


def cast(source: DType, dtype: DType, vector: bool) -> Op:
    """Value conversion as NumPy's `astype`."""
    np_from, np_to, finish = source.np, dtype.np, to_scalar(dtype)
    if vector:
        return lambda a: a.astype(np_to)
    if source.is_int and dtype.is_int:
        return wrapper(dtype)
    return lambda a: finish(np.asarray(a, np_from).astype(np_to)[()])


def intrinsic(fn: str, operand: DType, dtype: DType, vector: bool) -> Op:
    """The NumPy meaning of a `Call`."""
    if fn == "fma" and operand in (f32, f64):
        one = _fma(operand.name)
        if not vector:
            return one
        return lambda a, b, c: np.array([one(x, y, z) for x, y, z in zip(a, b, c)], operand.np)
    meaning = TABLE[fn].numpy
    if vector:
        return lambda *args: np.asarray(meaning(*args)).astype(dtype.np)
    finish = to_scalar(dtype)
    if operand.is_int:
        return lambda *args: finish(np.asarray(meaning(*(operand.np.type(a) for a in args))).astype(dtype.np)[()])
    return lambda *args: finish(meaning(*args))


@lru_cache
def _fma(name: str) -> Op:
    lib = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
    fn, kind = (lib.fmaf, ctypes.c_float) if name == "f32" else (lib.fma, ctypes.c_double)
    result = np.float32 if name == "f32" else np.float64
    fn.restype, fn.argtypes = kind, [kind, kind, kind]
    return lambda a, b, c: result(fn(a, b, c))


def horizontal(op: str, dtype: DType) -> Op:
    """`HReduce`: halves combined pairwise, repeatedly."""
    pairwise = binary({"and": "&", "or": "|"}.get(op, op), dtype, True)
    finish = to_scalar(dtype)

    def reduce(a: Any) -> Any:
        while len(a) > 1:
            half = len(a) // 2
            a = pairwise(a[:half], a[half:])
        return finish(a[0])

    return reduce
