"""ATen's distances between rows, and their derivatives."""

from __future__ import annotations

import math

import numpy as np

from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.poly.dtypes import i64


def _rows(b: Lowering, x: Value, y: Value) -> Value:
    """Differences of each row of `x` and each of `y`, along the last axis."""
    one = b.reshape(x, [*x.shape[:-1], 1, x.shape[-1]])
    other = b.reshape(y, [*y.shape[:-2], 1, *y.shape[-2:]])
    return b.op("Sub", one, other)


def _norm(b: Lowering, x: Value, p: float) -> Value:
    """The p-norm along the last axis."""
    size, last = b.op("Abs", x), b.integers([x.rank - 1])
    if p == 0:
        return b.sum(b.cast(b.op("Not", b.op("Equal", x, 0.0)), x.dtype), [x.rank - 1])
    if p == 1:
        return b.op("ReduceSum", size, last, keepdims=0)
    if math.isinf(p):
        return b.op("ReduceMax", size, last, keepdims=0)
    if p == 2:
        return b.op("Sqrt", b.op("ReduceSum", b.op("Mul", x, x), last, keepdims=0))
    return b.op("Pow", b.op("ReduceSum", b.op("Pow", size, p), last, keepdims=0), 1 / p)


def _slope(b: Lowering, apart: Value, norm: Value, p: float) -> Value:
    """The derivative of the norm by each difference; 0 where the norm is 0."""
    sign = b.op("Sign", apart)
    if p == 1:
        return sign
    zero = b.full(0, apart.dtype, ())
    if math.isinf(p):
        return b.op("Where", b.op("Equal", b.op("Abs", apart), norm), sign, zero)
    flat = b.op("Equal", norm, 0.0)
    norm = b.op("Where", flat, b.full(1, apart.dtype, ()), norm)
    if p == 2:
        return b.op("Where", flat, zero, b.op("Div", apart, norm))
    size = b.op("Abs", apart)
    powers = b.op("Where", b.op("Equal", size, 0.0), zero, b.op("Pow", b.op("Div", size, norm), p - 1))
    return b.op("Where", flat, zero, b.op("Mul", sign, powers))


def _column(b: Lowering, x: Value) -> Value:
    return b.reshape(x, [*x.shape, 1])


@aten("_cdist_forward.default")
def cdist(b: Lowering, x: Value, y: Value, p: float, mode: int | None) -> Value:
    """Distances of all pairs of rows."""
    assert b.result is not None
    if not math.prod(b.result[1]) or not x.shape[-1]:
        return b.full(0, *b.result)
    return _norm(b, _rows(b, x, y), p)


@aten("_cdist_backward.default")
def cdist_backward(b: Lowering, dy: Value, x: Value, y: Value, p: float, distances: Value) -> Value:
    """The adjoint of the first operand."""
    assert b.result is not None
    if p == 0 or not dy.size or not x.size:
        return b.full(0, *b.result)
    slope = _slope(b, _rows(b, x, y), _column(b, distances), p)
    return b.sum(b.op("Mul", _column(b, dy), slope), [slope.rank - 2])


def _pairs(b: Lowering, x: Value) -> tuple[np.ndarray, np.ndarray, Value]:
    one, other = np.triu_indices(x.shape[0], 1)
    rows = [b.op("Gather", x, b.constant(i.astype(np.int64), i64), axis=0) for i in (one, other)]
    return one, other, b.op("Sub", *rows)


@aten("_pdist_forward.default")
def pdist(b: Lowering, x: Value, p: float = 2) -> Value:
    """Distances of all pairs of rows of one matrix."""
    assert b.result is not None
    if not math.prod(b.result[1]) or not x.shape[1]:
        return b.full(0, *b.result)
    return _norm(b, _pairs(b, x)[2], p)


@aten("_pdist_backward.default")
def pdist_backward(b: Lowering, dy: Value, x: Value, p: float, distances: Value) -> Value:
    """The adjoint of the matrix: each pair gives to both of its rows."""
    if p == 0 or not dy.size or not x.size:
        return b.full(0, x.dtype, x.shape)
    one, other, apart = _pairs(b, x)
    part = b.op("Mul", _column(b, dy), _slope(b, apart, _column(b, distances), p))
    rows = np.concatenate([one, other]).astype(np.int64)[:, None]
    both = b.op("Concat", part, b.op("Neg", part), axis=0)
    return b.op("ScatterND", b.full(0, x.dtype, x.shape), b.constant(rows, i64), both, reduction="add")
