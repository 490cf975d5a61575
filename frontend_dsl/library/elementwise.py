"""Operators that apply a scalar function to every element, with broadcasting."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Callable
from typing import Any

from polyc.frontend_dsl import empty, grid, op
from polyc.frontend_dsl.library.subscripts import align
from polyc.poly.dtypes import DType

Shape = tuple[int, ...]
Scalar = Callable[..., Any]


def make_unary(fn: Scalar, T: DType, U: DType, shape: Shape) -> Any:
    """`Y[i] = fn(X[i])`, from elements of type `T` to `U`."""

    @op
    def unary(X: T[shape]) -> U[shape]:
        Y = empty(shape, U)
        for i in grid(*shape):
            Y[i] = U(fn(X[i]))
        return Y

    return unary


def make_broadcast(T: DType, x_shape: Shape, shape: Shape) -> Any:
    """`X` repeated along its dimensions of extent 1 (ONNX Expand)."""

    @op
    def broadcast(X: T[x_shape]) -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = X[align(i, x_shape, shape)]
        return Y

    return broadcast


def make_binary(fn: Scalar, T: tuple[DType, DType], U: DType, shapes: tuple[Shape, Shape], shape: Shape) -> Any:
    """`Y[i] = fn(A[i], B[i])`; `A` and `B` of `shapes` broadcast to `shape`."""
    (TA, TB), (a_shape, b_shape) = T, shapes

    @op
    def binary(A: TA[a_shape], B: TB[b_shape]) -> U[shape]:
        Y = empty(shape, U)
        for i in grid(*shape):
            Y[i] = U(fn(A[align(i, a_shape, shape)], B[align(i, b_shape, shape)]))
        return Y

    return binary


def make_ternary(
    fn: Scalar, T: tuple[DType, DType, DType], U: DType, shapes: tuple[Shape, Shape, Shape], shape: Shape
) -> Any:
    """`Y[i] = fn(A[i], B[i], C[i])` with broadcasting."""
    (TA, TB, TC), (a_shape, b_shape, c_shape) = T, shapes

    @op
    def ternary(A: TA[a_shape], B: TB[b_shape], C: TC[c_shape]) -> U[shape]:
        Y = empty(shape, U)
        for i in grid(*shape):
            Y[i] = U(fn(A[align(i, a_shape, shape)], B[align(i, b_shape, shape)], C[align(i, c_shape, shape)]))
        return Y

    return ternary


def make_channelwise(fn: Scalar, T: DType, shape: Shape, axis: int) -> Any:
    """`Y[i] = fn(X[i], S[c], B[c], M[c], V[c])` with `c = i[axis]` (batch normalisation)."""
    C = shape[axis]

    @op
    def channelwise(X: T[shape], S: T[C], B: T[C], M: T[C], V: T[C]) -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = fn(X[i], S[i[axis]], B[i[axis]], M[i[axis]], V[i[axis]])
        return Y

    return channelwise
