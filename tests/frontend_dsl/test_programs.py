"""Whole programs by control flow, scalars and local arrays: enumerated Scops equal plain Python, bit for bit."""

import numpy as np
import pytest
from brute_force import check, check_refused, rand

from polyc.frontend_dsl import dims, empty, grid, inout, op, zeros
from polyc.poly.dtypes import f32, f64, i32, i64
from polyc.poly.errors import ArgumentError

M, N, K = dims("M N K")


@op
def lu(A: inout(f64[N, N])):
    for k in range(N):
        for i in range(k + 1, N):
            A[i, k] /= A[k, k]
        for i, j in grid((k + 1, N), (k + 1, N)):
            A[i, j] -= A[i, k] * A[k, j]


def test_lu():
    scop = check(lu, rand(5, 5, dtype="f8") + 5 * np.eye(5), sizes={"N": 5})
    assert scop.statements["S1"].iters == ("k", "i_1", "j")


def test_local_scalars_are_private_to_their_iterations():
    @op
    def dot_rows(A: f32[M, K], B: f32[M, K]) -> f32[M]:
        C = empty((M,), f32)
        for i in range(M):
            s = 0.0
            for k in range(K):
                t = A[i, k] * B[i, k]
                s += t
            C[i] = s
        return C

    scop = check(dot_rows, rand(3, 4), rand(3, 4), sizes={"M": 3, "K": 4})
    assert scop.arrays["s"].dtype == f32 and len(scop.arrays["s"].shape) == 1
    assert len(scop.arrays["t"].shape) == 2
    assert [s.reduction for s in scop.statements.values()] == [None, None, "+", None]


def test_a_scalar_carried_round_the_loop_is_shared():
    @op
    def scan(A: f32[N]) -> f32[N]:
        C = empty((N,), f32)
        s = 1.0
        for i in range(N):
            C[i] = s
            s = s * 0.5 + A[i]
        return C

    scop = check(scan, rand(6), sizes={"N": 6})
    assert scop.arrays["s"].shape == ()


def test_one_name_for_several_scalars():
    @op
    def twice(A: f32[N], B: f64[N]) -> (f32[N], f64[N]):
        C, D = empty((N,), f32), empty((N,), f64)
        for i in range(N):
            t = A[i] + 1
            t = t * t
            C[i] = t
            t = B[i] * 2
            D[i] = t
        return C, D

    scop = check(twice, rand(4), rand(4, dtype="f8"), sizes={"N": 4})
    assert [scop.arrays[n].dtype for n in ("t", "t_1", "t_2")] == [f32, f32, f64]


def test_last_value_of_a_loop():
    @op
    def last(A: f32[N]) -> f32[1]:
        C = empty((1,), f32)
        s = A[0]
        for i in range(1, N):
            s = A[i] - s
        C[0] = s
        return C

    check(last, rand(5), sizes={"N": 5})


def test_affine_conditions_restrict_the_domain():
    @op
    def bands(A: f32[N, N]) -> f32[N, N]:
        C = empty((N, N), f32)
        for i, j in grid(N, N):
            if i > j:
                C[i, j] = A[j, i]
            elif i == j or (j - i) % 3 == 1:
                C[i, j] = 1
            else:
                C[i, j] = A[i, j] * i
        return C

    scop = check(bands, rand(7, 7), sizes={"N": 7})
    assert all(s.predicate is None for s in scop.statements.values())


def test_data_conditions_are_predicates():
    @op
    def relu(A: f32[N]) -> f32[N]:
        C = empty((N,), f32)
        for i in range(N):
            if A[i] > 0 and i > 1:
                C[i] = A[i]
            else:
                C[i] = 0.0
        return C

    scop = check(relu, rand(9), sizes={"N": 9})
    assert scop.statements["S0"].predicate is not None
    assert len(scop.statements) == 2


def test_conditions_that_are_neither_affine_nor_on_data():
    @op
    def mask(A: f64[N, N]) -> f64[N, N]:
        B = zeros((N, N), f64)
        for i, j in grid(N, N):
            if i * j > 3:
                B[i, j] = A[i, j]
            elif (i ^ j) & 1 == 0:
                B[i, j] = -A[i, j]
            if i < 2.0:
                B[i, j] += 1
        return B

    scop = check(mask, rand(5, 5, dtype="f8"), sizes={"N": 5})
    assert [s.predicate is None for s in scop.statements.values()] == [True, False, False, True]


def test_conditions_that_the_body_changes_are_kept():
    @op
    def steps_up(A: f32[M, N]) -> (f32[M], i64[M]):
        best, where_ = empty((M,), f32), empty((M,), i64)
        for i in range(M):
            m = A[i, 0]
            at = 0
            for j in range(N):
                if A[i, j] > m:
                    m = A[i, j] + 0.25
                    at = j
            best[i] = m
            where_[i] = at
        return best, where_

    scop = check(steps_up, rand(4, 6), sizes={"M": 4, "N": 6})
    assert "cond" in scop.arrays

    @op
    def flip(A: inout(f32[N])):
        for i in range(N):
            if A[i] > 0:
                A[i] = -1.0
                A[i] *= 2
            else:
                A[i] = 1.0

    check(flip, rand(9), sizes={"N": 9})


def test_a_single_store_needs_no_kept_condition():
    @op
    def clamp(A: inout(f32[N])):
        for i in range(N):
            if A[i] > 0:
                A[i] = 0.0

    assert set(check(clamp, rand(9), sizes={"N": 9}).arrays) == {"A"}


def test_scalars_assigned_in_branches():
    @op
    def branch(A: f32[N]) -> f32[N]:
        C = empty((N,), f32)
        for i in range(N):
            if A[i] > 0:
                t = A[i] * 2
            else:
                t = 1.0
            if i < 3:
                t = t + 1
            C[i] = t
        return C

    assert check(branch, rand(6), sizes={"N": 6}).arrays["t"].dtype == f32


def test_steps_and_bounds():
    @op
    def steps(A: f64[N, N]) -> f64[N, N]:
        C = zeros((N, N), f64)
        for i in range(N - 1, -1, -1):
            for j in range(max(0, i - 2), min(N, i + 3), 2):
                C[i, j] += A[i, j] + C[min(i + 1, N - 1), j]
        for i in range(0, N, 3):
            for j in range(i // 2, N - i % 2):
                C[i, j] -= 1
        for i in range(N - 1, 0, -2):
            C[i, 0] = C[i - 1, 0]
        return C

    scop = check(steps, rand(8, 8, dtype="f8"), sizes={"N": 8})
    assert "C_init_0" in scop.statements["S0"].iters


def test_padding_by_conditional_expression():
    @op
    def pad(X: f32[N]) -> f32[N + 2]:
        Y = empty((N + 2,), f32)
        for i in range(N + 2):
            Y[i] = X[i - 1] if 0 < i < N + 1 else 0.0
        return Y

    check(pad, rand(4), sizes={"N": 4})


def test_indirection():
    @op
    def gather(A: f32[M, N], idx: i32[K]) -> f32[K, N]:
        C = empty((K, N), f32)
        for i, j in grid(K, N):
            C[i, j] = A[idx[i], j]
        return C

    check(gather, rand(4, 3), np.array([3, 0, 2, 2, 1], "i4"), sizes={"M": 4, "N": 3, "K": 5})

    @op
    def spmv(ptr: i64[M + 1], col: i64[K], val: f64[K], x: f64[N]) -> f64[M]:
        y = zeros((M,), f64)
        for i in range(M):
            for p in range(ptr[i], ptr[i + 1]):
                y[i] += val[p] * x[col[p]]
        return y

    ptr, col = np.array([0, 2, 2, 5], "i8"), np.array([0, 2, 1, 2, 3], "i8")
    scop = check(spmv, ptr, col, rand(5, dtype="f8"), rand(4, dtype="f8"), sizes={"M": 3, "K": 5, "N": 4})
    assert scop.statements["S1"].dynamic[0].iter == "p"


def test_data_dependent_loops_below_zero():
    @op
    def around(n: i64[N], A: f32[M]) -> f32[M]:
        B = zeros((M,), f32)
        for i in range(N):
            for j in range(n[i] - 2, n[i] + 1):
                if 0 <= j < M:
                    B[j] += A[j]
        return B

    check(around, np.array([0, 1, 3, 5]), rand(5), sizes={"N": 4, "M": 5})


def test_bounds_that_the_loop_changes_are_kept():
    @op
    def grow(n: inout(i64[1]), A: inout(f32[N])):
        for i in range(n[0]):
            A[i] += 1
            n[0] += 1

    check(grow, np.array([3], "i8"), rand(8), sizes={"N": 8})


def test_swaps():
    @op
    def swap(A: inout(f32[N])):
        for i in range(N // 2):
            A[i], A[N - 1 - i] = A[N - 1 - i], A[i]
        a = A[0]
        b = A[1]
        for _ in range(3):
            a, b = b, a + b
        A[0] = a
        A[1] = b

    check(swap, rand(7), sizes={"N": 7})


def test_local_arrays():
    @op
    def blur(A: f32[M, N]) -> f32[M, N]:
        C = empty((M, N), f32)
        for i in range(M):
            row = zeros((N,), f32)
            for j in range(1, N):
                row[j] = A[i, j] + A[i, j - 1]
            for j in range(N):
                C[i, j] = row[j] * 0.5
        return C

    scop = check(blur, rand(3, 5), sizes={"M": 3, "N": 5})
    assert len(scop.arrays["row"].shape) == 2


def test_reassociation_can_be_forbidden():
    @op(reassociate=False)
    def total(X: f32[N], Z: i32[N]) -> (f32[1], i32[1]):
        Y, W = zeros((1,), f32), zeros((1,), i32)
        for i in range(N):
            Y[0] += X[i]
            W[0] = Z[i] + W[0]
        return Y, W

    scop = check(total, rand(5), np.arange(5, dtype="i4"), sizes={"N": 5})
    assert not scop.reassociate
    assert [s.reduction for s in scop.statements.values()] == [None, None, None, "+"]


def test_a_name_that_is_local_and_unrolled_loop_variable():
    @op
    def names(A: f64[N]) -> (f64[N], f64[N]):
        B, C = zeros((N,), f64), zeros((N,), f64)
        c = 5
        for t in range(N):
            B[t] = c
            for c in (1, 2):
                C[t] += c * A[t]
        return B, C

    check(names, rand(4, dtype="f8"), sizes={"N": 4})


def test_a_name_that_is_local_and_loop_variable_is_refused():
    @op
    def names(A: inout(f64[N])):
        i = 5
        for t in range(N):
            A[t] = i
            for i in range(3):
                A[t] += i

    check_refused(names, "i is a local scalar and a loop variable")


def _shifted(there: bool):
    @op
    def shifted(X: f32[3], B: f32[3] if there else None) -> f32[3]:
        Y = empty(3, f32)
        for i in range(3):
            Y[i] = X[i] + B[i] if there else X[i]
        return Y

    return shifted


def test_an_absent_parameter_is_not_passed() -> None:
    x, b = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    for how in ("python", "__call__"):
        assert list(getattr(_shifted(True), how)(x, b)) == [1, 2, 3]
        assert list(getattr(_shifted(False), how)(x)) == [0, 1, 2]
    with pytest.raises(ArgumentError, match="takes 1 argument, not 2"):
        _shifted(False)(x, b)
