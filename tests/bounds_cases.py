"""Operators with indirection, and calls of them with accesses inside and outside: what each back end must say."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from examples.indirection import embedding, gather_at_sums, spmv
from polyc import BoundsError, dims, empty, f32, i8, i32, i64, inout, op, u8, u32, u64, zeros
from polyc.poly.dtypes import DType

N, M, K = dims("N M K")


def gather_by(T: DType, n: Any = N) -> Any:
    """`X[I[i]]` for all i, of `n` elements with indices of type `T`."""

    @op
    def gather(X: f32[n], I: T[M]) -> f32[M]:
        Y = empty(M, f32)
        for i in range(M):
            Y[i] = X[I[i]]
        return Y

    return gather


gather, gather_unsigned, bytes_of_table = gather_by(i32), gather_by(u64), gather_by(u8, 256)


@op
def histogram(X: inout(f32[N]), I: i32[M]):
    for i in range(M):
        X[I[i]] += 1


@op
def fill(A: inout(f32[N]), n: i32):
    for i in range(n):
        A[i] = 1.0


@op
def fill_from(A: inout(f32[N]), lo: i32, hi: i32):
    for i in range(lo, hi):
        A[i] = 1.0


@op
def squares(A: f32[N], Y: inout(f32[M])):
    for i in range(M):
        Y[i] = A[i * i]


@op
def sentinels(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        if I[i] >= 0:
            Y[i] = X[I[i]]
        else:
            Y[i] = -1.0
    return Y


@op
def chosen(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i]] if I[i] < N else -1.0
    return Y


@op
def nested(X: f32[N], I: i32[M], J: i64[K]) -> f32[K]:
    Y = empty(K, f32)
    for i in range(K):
        Y[i] = X[I[J[i]]]
    return Y


@op
def wrapping(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i] * 1000000]
    return Y


@op
def second_axis(X: f32[N, K], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[N - 1, I[i]]
    return Y


@op
def computed_bounds(I: i64[N + 1], val: f32[K]) -> f32[N]:
    at = empty(N + 1, i64)
    y = zeros(N, f32)
    at[0] = I[0]
    for i in range(1, N + 1):
        at[i] = at[i - 1] + I[i]
    for i in range(N):
        for j in range(at[i], at[i + 1]):
            y[i] += val[j]
    return y


@op
def shifted(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i + 1]] if i < M - 1 else 0.0
    return Y


@op
def divided(X: f32[N], I: i32[M], J: i32[M]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        if J[i] != 0:
            Y[i] = X[I[i] // J[i]] * (X[I[i] % J[i]] if I[i] < 100 else 0.0)
    return Y


@op
def both_conditions(X: f32[N], I: i32[M]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        if I[i] >= 0 and X[I[i]] > 2.0:
            Y[i] = X[I[i]]
    return Y


@op
def chase(I: i32[N], start: i32) -> i32[1]:
    Y = empty(1, i32)
    k = start
    n = 0
    while I[k] != 0:
        k = I[k]
        n = n + 1
    Y[0] = n
    return Y


@op
def under_data(A: f32[N], B: f32[M]) -> f32[N]:
    Y = zeros(N, f32)
    for i in range(N):
        if A[i] > 0.0:
            Y[i] = B[i]
    return Y


@op
def asked_before_a_condition(X: f32[N], I: i32[M]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        if X[I[i]] > 0.0 and i < 2:
            Y[i] = 1.0
    return Y


@op
def asked_around_a_condition(X: f32[N], I: i32[M]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        if X[I[i]] > 0.0:
            if i < 2:
                Y[i] = 1.0
    return Y


@op
def asked_around_a_loop(X: f32[N], I: i32[M]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        if X[I[M - 1 - i]] > 0.0:
            for k in range(i):
                Y[k] += 1.0
    return Y


@op
def asked_as_a_bound(I: i32[M], X: i32[N]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        for k in range(X[I[i]]):
            if i < 2:
                Y[i] += 1.0
    return Y


@op
def read_in_part(X: f32[N], I: i32[M]) -> f32[M]:
    T, Y = empty(M, f32), zeros(M, f32)
    for i in range(M):
        T[i] = X[I[i]]
    for i in range(M):
        if i < 2:
            Y[i] = T[i] + 1.0
    return Y


@op
def taken_in_part(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        t = X[I[i]]
        Y[i] = t if i < 2 else -1.0
    return Y


@op
def taken_by_data(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        t = X[I[i]]
        u = t * 2.0
        Y[i] = u if I[i] < 7 else -1.0
    return Y


def i_(*values: int, dtype: Any = np.int32) -> np.ndarray:
    """An array of indices."""
    return np.array(values, dtype)


X = np.arange(10, dtype=np.float32)
POINTERS, COLUMNS = i_(0, 3, 3, 5), i_(0, 9, 2, 3, 4)
TABLE = np.arange(256, dtype=np.float32)


class Outside(NamedTuple):
    """The error that a call must end with: one of the arrays (`a|b`), its axis and size, indices that may be named."""

    array: str
    axis: int
    indices: set[int]
    size: int


Case = tuple[Any, tuple[Any, ...], Outside | None]
"""Operator, arguments, and the error or None."""

CASES: dict[str, Case] = {
    "inside": (gather, (X, i_(0, 9, 3)), None),
    "one beyond": (gather, (X, i_(0, 10, 3)), Outside("X", 0, {10}, 10)),
    "negative": (gather, (X, i_(0, -1, 3)), Outside("X", 0, {-1}, 10)),
    "in the last vector": (gather, (X, i_(*[3] * 40, 99)), Outside("X", 0, {99}, 10)),
    "smallest": (gather, (X, i_(*[3] * 40, -(2**31))), Outside("X", 0, {-(2**31)}, 10)),
    "i8": (gather_by(i8), (X, i_(0, -128, dtype=np.int8)), Outside("X", 0, {-128}, 10)),
    "u64": (gather_unsigned, (X, i_(0, 2**64 - 1, dtype=np.uint64)), Outside("X", 0, {2**64 - 1}, 10)),
    "u32": (gather_by(u32), (X, i_(0, 2**32 - 1, dtype=np.uint32)), Outside("X", 0, {2**32 - 1}, 10)),
    "all bytes": (bytes_of_table, (TABLE, np.arange(256, dtype=np.uint8)), None),
    "update": (histogram, (X, i_(1, 1, -1)), Outside("X", 0, {-1}, 10)),
    "update inside": (histogram, (X, i_(1, 1, 9)), None),
    "scalar bound": (fill, (X[:4], 8), Outside("A", 0, {4, 5, 6, 7}, 4)),
    "no iteration": (fill, (X[:4], -8), None),
    "exact bound": (fill, (X[:4], 4), None),
    "lower bound": (fill_from, (X[:4], -2, 1), Outside("A", 0, {-2, -1}, 4)),
    "outside, but empty": (fill_from, (X[:4], 9, 7), None),
    "sentinels": (sentinels, (X, i_(0, -1, 3)), None),
    "beside sentinels": (sentinels, (X, i_(0, -1, 30)), Outside("X", 0, {30}, 10)),
    "select": (chosen, (X, i_(0, 2**31 - 1, 3)), None),
    "select, negative": (chosen, (X, i_(0, -7, 3)), Outside("X", 0, {-7}, 10)),
    "nested": (nested, (X, i_(1, 2, 99), i_(0, 1, dtype=np.int64)), None),
    "nested, outer": (nested, (X, i_(1, 2, 99), i_(0, 2, dtype=np.int64)), Outside("X", 0, {99}, 10)),
    "nested, inner": (nested, (X, i_(1, 2, 99), i_(0, 3, dtype=np.int64)), Outside("I", 0, {3}, 3)),
    "wrapped around": (wrapping, (X, i_(0, 5000)), Outside("X", 0, {705032704}, 10)),
    "rows": (embedding, (X.reshape(5, 2), i_(0, 4, dtype=np.int64)), None),
    "row beyond": (embedding, (X.reshape(5, 2), i_(0, 5, dtype=np.int64)), Outside("table", 0, {5}, 5)),
    "column beyond": (second_axis, (X.reshape(5, 2), i_(0, 2)), Outside("X", 1, {2}, 2)),
    "computed": (gather_at_sums, (X, i_(1, 2, 6)), None),
    "computed, beyond": (gather_at_sums, (X, i_(1, 2, 7, -20)), Outside("x", 0, {10, -10}, 10)),
    "csr": (spmv, (POINTERS, COLUMNS, X[:5], X), None),
    "csr, column": (spmv, (POINTERS, i_(0, 10, 2, 3, 4), X[:5], X), Outside("x", 0, {10}, 10)),
    "csr, unused padding": (spmv, (POINTERS, i_(0, 1, 2, 3, 4, -1), X[:6], X), None),
    "csr, pointer": (spmv, (i_(0, 3, 3, 7), COLUMNS, X[:5], X), Outside("val|col", 0, {5, 6}, 5)),
    "csr, negative pointer": (spmv, (i_(-1, 3, 3, 5), COLUMNS, X[:5], X), Outside("val|col", 0, {-1}, 5)),
    "csr, rows that do not run": (spmv, (i_(9, 3, 3, 5), COLUMNS, X[:5], X), None),
    "guard": (under_data, (-X, X[:4]), None),
    "guard that lets through": (under_data, (X, X[:4]), Outside("B", 0, {4, 5, 6, 7, 8, 9}, 4)),
    "a condition on the loop": (shifted, (X, i_(-7, 1, 2)), None),
    "a condition on the loop, beyond": (shifted, (X, i_(0, 1, 11)), Outside("X", 0, {11}, 10)),
    "divided": (divided, (X, i_(5, 9, 8), i_(0, 9, 1)), None),
    "divided, beyond": (divided, (X, i_(5, 9, 18), i_(0, 9, 1)), Outside("X", 0, {18}, 10)),
    "and": (both_conditions, (X, i_(-5, 9, 8)), None),
    "and, beyond": (both_conditions, (X, i_(-5, 9, 10)), Outside("X", 0, {10}, 10)),
    "read in part": (read_in_part, (X, i_(5, 9, 8, 1)), None),
    "read in part, beyond": (read_in_part, (X, i_(5, 9, 8, 11)), Outside("X", 0, {11}, 10)),
    "taken in part": (taken_in_part, (X, i_(5, 9, 8, 1)), None),
    "taken in part, beyond": (taken_in_part, (X, i_(5, 9, 8, 11)), Outside("X", 0, {11}, 10)),
    "taken by data, beyond": (taken_by_data, (X, i_(5, 9, 8, 11)), Outside("X", 0, {11}, 10)),
    "asked before a condition": (asked_before_a_condition, (X, i_(5, 9, 8, 1)), None),
    "asked before a condition, beyond": (asked_before_a_condition, (X, i_(5, 9, 8, 11)), Outside("X", 0, {11}, 10)),
    "asked around a condition": (asked_around_a_condition, (X, i_(5, 9, 8, 1)), None),
    "asked around a condition, beyond": (asked_around_a_condition, (X, i_(5, 9, 8, 11)), Outside("X", 0, {11}, 10)),
    "asked around a loop": (asked_around_a_loop, (X, i_(5, 9, 8, 1)), None),
    "asked around a loop, beyond": (asked_around_a_loop, (X, i_(5, 9, 8, 11)), Outside("X", 0, {11}, 10)),
    "asked as a bound": (asked_as_a_bound, (i_(1, 3, 2, 0), i_(2, 0, 1, 5)), None),
    "asked as a bound, beyond": (asked_as_a_bound, (i_(1, 3, 2, 9), i_(2, 0, 1, 5)), Outside("X", 0, {9}, 4)),
    "while": (chase, (i_(1, 2, 3, 0), 0), None),
    "while, beyond": (chase, (i_(1, 2, 7, 0), 0), Outside("I", 0, {7}, 4)),
    "while, negative": (chase, (i_(1, 2, 3, 0), -7), Outside("I", 0, {-7}, 4)),
    "not affine": (squares, (X, X[:4]), None),
    "not affine, beyond": (squares, (X, X[:5]), Outside("A", 0, {16}, 10)),
    "nothing executed": (squares, (X[:0], X[:0]), None),
    "an empty array": (gather, (X[:0], i_(0)), Outside("X", 0, {0}, 0)),
}


def copies(arguments: Iterable[Any]) -> list[Any]:
    """The arguments, with arrays of their own."""
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def outcome(run: Any, arguments: tuple[Any, ...]) -> Any:
    """The result with the arguments as they are after, or the error."""
    given = copies(arguments)
    try:
        return run(*given), given
    except BoundsError as error:
        return error


def assert_outside(found: Any, operator: Any, expected: Outside, where: str = "") -> None:
    """Fails unless `found` is the error that is expected."""
    assert isinstance(found, BoundsError), (where, found)
    assert (found.operator, found.axis, found.size) == (operator.name, expected.axis, expected.size), (where, found)
    assert found.array in expected.array.split("|") and found.index in expected.indices, (where, found)
