"""Loops that apply an expression given from outside: maps, reductions, windows, gathers and scatters by slices.

The expression is a `Term`, which the front end inlines where it stands.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Callable, Sequence
from typing import Any

from polyc.frontend_dsl import empty, grid, max, min, op
from polyc.poly.dtypes import DType, i64
from polyc.poly.records import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Term:
    """An expression: the argument at `place`, else the constant `number`, else `function` of the operands."""

    function: Callable[..., Any] | None = None
    operands: "tuple[Term, ...]" = ()
    place: int = -1
    number: Any = None


def value(term: Any, given: Any) -> Any:
    """The expression for these arguments."""
    return (
        given[term.place] if term.place >= 0
        else term.number if term.function is None
        else term.function(*[value(t, given) for t in term.operands])
    )  # fmt: skip


def make_map(term: Term, types: Sequence[DType], result: DType, size: int) -> Any:
    """`Y[i] = term(A[i], B[i], ...)` of one, two or three operands of `size` elements."""
    kinds = [*types, *types, *types][:3]
    T, U, V = kinds[0], kinds[1], kinds[2]

    @op
    def map1(A: T[size]) -> result[size]:
        Y = empty(size, result)
        for i in range(size):
            Y[i] = value(term, (A[i],))
        return Y

    @op
    def map2(A: T[size], B: U[size]) -> result[size]:
        Y = empty(size, result)
        for i in range(size):
            Y[i] = value(term, (A[i], B[i]))
        return Y

    @op
    def map3(A: T[size], B: U[size], C: V[size]) -> result[size]:
        Y = empty(size, result)
        for i in range(size):
            Y[i] = value(term, (A[i], B[i], C[i]))
        return Y

    return (map1, map2, map3)[len(types) - 1]


def make_reduce(term: Term, T: DType, outer: int, inner: int) -> Any:
    """`Y[o]` from the scalar `I`, joined with every `X[o, i]` by `term(so far, element)`."""

    @op
    def reduce(X: T[outer, inner], I: T[1]) -> T[outer]:
        Y = empty(outer, T)
        for o in range(outer):
            Y[o] = I[0]
            for i in range(inner):
                Y[o] = value(term, (Y[o], X[o, i]))
        return Y

    return reduce


def make_reduce_pair(first: Term, second: Term, T: DType, U: DType, outer: int, inner: int) -> Any:
    """Two arrays reduced together: `(y, z)` from `(I, J)` by both terms of `(y, z, X[o, i], W[o, i])`."""

    @op
    def reduce_pair(X: T[outer, inner], W: U[outer, inner], I: T[1], J: U[1]) -> tuple[T[outer], U[outer]]:
        Y = empty(outer, T)
        Z = empty(outer, U)
        for o in range(outer):
            y = I[0]
            z = J[0]
            for i in range(inner):
                a = value(first, (y, z, X[o, i], W[o, i]))
                b = value(second, (y, z, X[o, i], W[o, i]))
                y = a
                z = b
            Y[o] = y
            Z[o] = z
        return Y, Z

    return reduce_pair


def make_reduce_windows(
    term: Term, T: DType, shape: Shape, result: Shape, window: Shape, strides: Shape, dilations: Shape
) -> Any:  # fmt: skip
    """`Y[p]` from the scalar `I`, joined with `X` at `p * strides + w * dilations` for every `w` of the window."""
    rank = len(shape)

    @op
    def reduce_windows(X: T[shape], I: T[1]) -> T[result]:
        Y = empty(result, T)
        for p in grid(*result):
            Y[p] = I[0]
            for w in grid(*window):
                Y[p] = value(term, (Y[p], X[*[p[d] * strides[d] + w[d] * dilations[d] for d in range(rank)]]))
        return Y

    return reduce_windows


def make_select_and_scatter(
    chosen: Term, joined: Term, T: DType, shape: Shape, source: Shape, window: Shape, strides: Shape, low: Shape
) -> Any:  # fmt: skip
    """Every element of `S` joined to where, in its window of `X` (from `p * strides - low`), the element stands that
    `chosen(element, other)` keeps against all behind it; elsewhere the scalar `I`."""
    rank = len(shape)
    axes = tuple(range(rank))

    @op
    def select_and_scatter(X: T[shape], S: T[source], I: T[1]) -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = I[0]
        for p in grid(*source):
            best = I[0]
            found = False
            where = empty(rank, i64)
            for k in range(rank):
                where[k] = 0
            for w in grid(*window):
                if all([0 <= p[d] * strides[d] + w[d] - low[d] < shape[d] for d in range(rank)]):
                    if not found or not value(
                        chosen, (best, X[*[p[d] * strides[d] + w[d] - low[d] for d in range(rank)]])
                    ):
                        best = X[*[p[d] * strides[d] + w[d] - low[d] for d in range(rank)]]
                        found = True
                        for k in axes:
                            where[k] = p[k] * strides[k] + w[k] - low[k]
            if found:
                Y[*[where[d] for d in range(rank)]] = value(joined, (Y[*[where[d] for d in range(rank)]], S[p]))
        return Y

    return select_and_scatter


def make_interior_pad(T: DType, shape: Shape, result: Shape, low: Shape, steps: Shape) -> Any:
    """`X[i]` at `low + i * steps` where that is inside, elsewhere the scalar `V`."""
    rank = len(shape)

    @op
    def interior_pad(X: T[shape], V: T[1]) -> T[result]:
        Y = empty(result, T)
        for p in grid(*result):
            Y[p] = V[0]
        for i in grid(*shape):
            if all([0 <= low[d] + i[d] * steps[d] < result[d] for d in range(rank)]):
                Y[*[low[d] + i[d] * steps[d] for d in range(rank)]] = X[i]
        return Y

    return interior_pad


def clipped(j: Any, most: int) -> Any:
    """The nearest of `0..most`."""
    return max(0, min(j, most))


def make_gather_slices(T: DType, shape: Shape, count: int, depth: int, columns: Shape, window: Shape) -> Any:
    """`Y[j]` is the slice of `X` with the extents `window` that begins, on axis `d`, at `J[j, columns[d]]` (a column
    of -1: at 0), moved inside where it is not."""
    rank = len(shape)
    most = tuple(n - w for n, w in zip(shape, window, strict=True))

    @op
    def gather_slices(X: T[shape], J: i64[count, depth]) -> T[(count, *window)]:
        Y = empty((count, *window), T)
        for j in range(count):
            for w in grid(*window):
                Y[j, *w] = X[
                    *[(clipped(J[j, columns[d]], most[d]) if columns[d] >= 0 else 0) + w[d] for d in range(rank)]
                ]
        return Y

    return gather_slices


def make_scatter_slices(
    joined: Term, T: DType, shape: Shape, count: int, depth: int, columns: Shape, window: Shape, moved: bool
) -> Any:  # fmt: skip
    """A copy of `X` in which the slice that begins, on axis `d`, at `J[j, columns[d]]` (a column of -1: at 0) is joined
    with `U[j]` by `joined(old, new)`, one `j` after the other. A slice that is not inside is left out, or `moved`."""
    rank = len(shape)
    most = tuple(n - w for n, w in zip(shape, window, strict=True))
    given = tuple(d for d in range(rank) if columns[d] >= 0)

    @op
    def scatter_slices(X: T[shape], J: i64[count, depth], U: T[(count, *window)]) -> T[shape]:
        Y = empty(shape, T)
        for p in grid(*shape):
            Y[p] = X[p]
        for j in range(count):
            for w in grid(*window):
                if moved or all([0 <= J[j, columns[d]] <= most[d] for d in given]):
                    Y[*[(clipped(J[j, columns[d]], most[d]) if columns[d] >= 0 else 0) + w[d] for d in range(rank)]] = (
                        value(
                            joined,
                            (
                                Y[
                                    *[
                                        (clipped(J[j, columns[d]], most[d]) if columns[d] >= 0 else 0) + w[d]
                                        for d in range(rank)
                                    ]
                                ],
                                U[j, *w],
                            ),
                        )
                    )
        return Y

    return scatter_slices
