"""Gathering by run-time indices.

Negative indices count from the end. An index outside the array is an error of the model
that loops cannot report; it is clamped, so that no kernel reads outside its arrays.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, unused-ignore"

from typing import Any

from frontend_dsl import empty, grid, max, min, op
from poly.dtypes import DType

Shape = tuple[int, ...]


def wrapped(j: Any, n: int) -> Any:
    """Index `j` as a position in `0..n-1`."""
    return max(min(j + n if j < 0 else j, n - 1), 0)


def make_gather(T: DType, I: DType, outer: int, n: int, inner: int, count: int) -> Any:
    """`Y[o, j, i] = X[o, idx[j], i]`."""

    @op
    def gather(X: T[outer, n, inner], J: I[count]) -> T[outer, count, inner]:
        Y = empty((outer, count, inner), T)
        for o, j, i in grid(outer, count, inner):
            Y[o, j, i] = X[o, wrapped(J[j], n), i]
        return Y

    return gather


def make_gather_elements(T: DType, I: DType, shape: Shape, index_shape: Shape, axis: int) -> Any:
    """`Y[i] = X[i with i[axis] replaced by J[i]]`."""
    n = shape[axis]

    @op
    def gather_elements(X: T[shape], J: I[index_shape]) -> T[index_shape]:
        Y = empty(index_shape, T)
        for i in grid(*index_shape):
            Y[i] = X[*i[:axis], wrapped(J[i], n), *i[axis + 1 :]]
        return Y

    return gather_elements


def make_gather_nd(T: DType, I: DType, batch: int, dims: Shape, inner: int, count: int) -> Any:
    """`Y[b, j, i] = X[b, *J[b, j], i]`."""
    depth = len(dims)

    @op
    def gather_nd(X: T[(batch, *dims, inner)], J: I[batch, count, depth]) -> T[batch, count, inner]:
        Y = empty((batch, count, inner), T)
        for b, j, i in grid(batch, count, inner):
            Y[b, j, i] = X[b, *[wrapped(J[b, j, d], dims[d]) for d in range(depth)], i]
        return Y

    return gather_nd


def make_one_hot(I: DType, T: DType, outer: int, depth: int, inner: int) -> Any:
    """`Y[o, k, i]` is `V[1]` where the index `J[o, i]` is `k`, else `V[0]`."""

    @op
    def one_hot(J: I[outer, inner], V: T[2]) -> T[outer, depth, inner]:
        Y = empty((outer, depth, inner), T)
        for o, k, i in grid(outer, depth, inner):
            j = J[o, i] + depth if J[o, i] < 0 else J[o, i]
            Y[o, k, i] = V[1] if j == k else V[0]
        return Y

    return one_hot
