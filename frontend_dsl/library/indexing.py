"""Gathering by run-time indices.

Negative indices count from the end. An index outside the array is an error where accesses are checked
(`polyc.poly.intrinsics`: `position`); elsewhere it is clamped, so that no kernel reads outside its arrays.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, max, min, op
from polyc.frontend_dsl.functions import position
from polyc.poly.dtypes import DType, i64

Shape = tuple[int, ...]


def wrapped(j: Any, n: int) -> Any:
    """Index `j` as a position in `0..n-1`."""
    return position(j + n if j < 0 else j, n)


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
    """`Y[o, k, i]` is `V[1]` where the index `J[o, i]` (a float loses its fraction) is `k`, else `V[0]`."""
    whole = I.is_int

    @op
    def one_hot(J: I[outer, inner], V: T[2]) -> T[outer, depth, inner]:
        Y = empty((outer, depth, inner), T)
        for o, k, i in grid(outer, depth, inner):
            j = J[o, i] if whole else i64(J[o, i])
            Y[o, k, i] = V[1] if (j + depth if j < 0 else j) == k else V[0]
        return Y

    return one_hot


def make_scatter_elements(
    T: DType, I: DType, shape: Shape, index_shape: Shape, axis: int, join: str
) -> Any:  # fmt: skip
    """A copy of `X` with `U[i]` stored at (or joined by `+ * max min` to) `i` with `i[axis]` from `J[i]`."""
    n = shape[axis]

    @op
    def scatter_elements(X: T[shape], J: I[index_shape], U: T[index_shape]) -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = X[i]
        for i in grid(*index_shape):
            if join == "none":
                Y[*i[:axis], wrapped(J[i], n), *i[axis + 1 :]] = U[i]
            elif join == "add":
                Y[*i[:axis], wrapped(J[i], n), *i[axis + 1 :]] += U[i]
            elif join == "mul":
                Y[*i[:axis], wrapped(J[i], n), *i[axis + 1 :]] *= U[i]
            elif join == "max":
                Y[*i[:axis], wrapped(J[i], n), *i[axis + 1 :]] = max(
                    Y[*i[:axis], wrapped(J[i], n), *i[axis + 1 :]], U[i]
                )
            else:
                Y[*i[:axis], wrapped(J[i], n), *i[axis + 1 :]] = min(
                    Y[*i[:axis], wrapped(J[i], n), *i[axis + 1 :]], U[i]
                )
        return Y

    return scatter_elements


def make_scatter_nd(T: DType, I: DType, dims: Shape, inner: int, count: int, join: str) -> Any:
    """A copy of `X[*dims, inner]` with `U[j]` stored at (or joined by `+ * max min` to) position `J[j]`."""
    depth = len(dims)

    def joined(a: Any, b: Any) -> Any:
        return max(a, b) if join == "max" else min(a, b)

    @op
    def scatter_nd(X: T[(*dims, inner)], J: I[count, depth], U: T[count, inner]) -> T[(*dims, inner)]:
        Y = empty((*dims, inner), T)
        for p in grid(*dims, inner):
            Y[p] = X[p]
        for j, i in grid(count, inner):
            if join == "none":
                Y[*[wrapped(J[j, d], dims[d]) for d in range(depth)], i] = U[j, i]
            elif join == "add":
                Y[*[wrapped(J[j, d], dims[d]) for d in range(depth)], i] += U[j, i]
            elif join == "mul":
                Y[*[wrapped(J[j, d], dims[d]) for d in range(depth)], i] *= U[j, i]
            else:
                Y[*[wrapped(J[j, d], dims[d]) for d in range(depth)], i] = joined(
                    Y[*[wrapped(J[j, d], dims[d]) for d in range(depth)], i], U[j, i]
                )
        return Y

    return scatter_nd


def make_reverse_sequence(T: DType, I: DType, steps: int, batch: int, inner: int, time_first: bool) -> Any:
    """The first `L[b]` steps of each sequence in reverse order, the others as they are."""
    shape = (steps, batch, inner) if time_first else (batch, steps, inner)

    @op
    def reverse_sequence(X: T[shape], L: I[batch]) -> T[shape]:
        Y = empty(shape, T)
        for b, t, i in grid(batch, steps, inner):
            source = min(steps - 1, max(0, L[b] - 1 - t)) if t < L[b] else t
            if time_first:
                Y[t, b, i] = X[source, b, i]
            else:
                Y[b, t, i] = X[b, source, i]
        return Y

    return reverse_sequence


def make_append(T: DType, batch: Any, groups: int, held: Any, rows: Any, inner: int, room: Any, used: Any) -> Any:
    """A cache of `room` positions: the first `J[b]` of `X[b,g,:]`, then the `rows` of `U[b,:,g]`, then zeros, from
    position `used` on `X` again.

    Rows that have no room are an error where accesses are checked.
    """

    @op
    def append(
        X: T[batch, groups, held, inner], U: T[batch, rows, groups, inner], J: i64[batch]
    ) -> T[batch, groups, room, inner]:
        Y = empty((batch, groups, room, inner), T)
        for b, g, s, i in grid(batch, groups, room, inner):
            if s >= held:
                Y[b, g, s, i] = T(0)
            elif s < used:
                Y[b, g, s, i] = X[b, g, s, i] if s < J[b] else T(0)
            else:
                Y[b, g, s, i] = X[b, g, s, i]
        for b, g, s, i in grid(batch, groups, rows, inner):
            Y[b, g, position(J[b] + s, room), i] = U[b, s, g, i]
        return Y

    return append


def make_put(T: DType, outer: Any, room: Any, rows: Any, inner: Any, at: Any) -> Any:
    """A copy of `X` with `rows` rows of `U` from row `at` on, which is a size."""

    @op
    def put(X: T[outer, room, inner], U: T[outer, rows, inner]) -> T[outer, room, inner]:
        Y = empty((outer, room, inner), T)
        for o, s, i in grid(outer, room, inner):
            Y[o, s, i] = X[o, s, i]
        for o, s, i in grid(outer, rows, inner):
            Y[o, at + s, i] = U[o, s, i]
        return Y

    return put


def make_tensor_scatter(
    T: DType, I: DType, batch: int, outer: int, size: int, update: int, inner: int, circular: bool
) -> Any:
    """A copy of `X[b,o,:,i]` with `update` steps of `U` written from position `J[b]` on; `circular` wraps round."""

    def place(j: Any) -> Any:
        return j % size if circular else max(min(j, size - 1), 0)

    @op
    def tensor_scatter(
        X: T[batch, outer, size, inner], U: T[batch, outer, update, inner], J: I[batch]
    ) -> T[batch, outer, size, inner]:
        Y = empty((batch, outer, size, inner), T)
        for b, o, s, i in grid(batch, outer, size, inner):
            Y[b, o, s, i] = X[b, o, s, i]
        for b, o, s, i in grid(batch, outer, update, inner):
            Y[b, o, place(J[b] + s), i] = U[b, o, s, i]
        return Y

    return tensor_scatter
