"""Whole programs: their Scops, enumerated instance by instance, equal plain Python bit for bit."""

import numpy as np
import pytest
from brute_force import check, run

from frontend_dsl import DslError, dims, empty, exp, full, grid, inout, op, sqrt, where, zeros
from poly.dtypes import bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from poly.errors import ArgumentError

L, M, N, K = dims("L M N K")
RNG = np.random.default_rng(7)


def rand(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@op
def matmul(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def lu(A: inout(f64[N, N])):
    for k in range(N):
        for i in range(k + 1, N):
            A[i, k] /= A[k, k]
        for i, j in grid((k + 1, N), (k + 1, N)):
            A[i, j] -= A[i, k] * A[k, j]


def test_matmul():
    scop = check(matmul, rand(3, 4), rand(4, 5), sizes={"M": 3, "K": 4, "N": 5})
    assert list(scop.statements) == ["S0", "S1"]
    assert [s.reduction for s in scop.statements.values()] == [None, "+"]
    assert scop.statements["S1"].iters == ("i", "j", "k")
    assert (scop.args, scop.results, scop.params) == (("A", "B"), ("C",), ("M", "K", "N"))


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
    def argmax(A: f32[M, N]) -> (f32[M], i64[M]):
        best, where_ = empty((M,), f32), empty((M,), i64)
        for i in range(M):
            m = A[i, 0]
            at = 0
            for j in range(N):
                if A[i, j] > m:
                    m = A[i, j]
                    at = j
            best[i] = m
            where_[i] = at
        return best, where_

    scop = check(argmax, rand(4, 6), sizes={"M": 4, "N": 6})
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


def test_rank_polymorphism():
    @op
    def softmax(X: f32[...]) -> f32[...]:
        Y = empty(X.shape, f32)
        for i in grid(*X.shape[:-1]):
            m = X[*i, 0]
            for k in range(1, X.shape[-1]):
                m = max(m, X[*i, k])
            s = 0.0
            for k in range(X.shape[-1]):
                Y[*i, k] = exp(X[*i, k] - m)
                s += Y[*i, k]
            for k in range(X.shape[-1]):
                Y[*i, k] /= s
        return Y

    for shape in [(5,), (2, 3), (2, 2, 3)]:
        check(softmax, rand(*shape), rtol=1e-6)
    scop = softmax.scop(X=(M, 4))
    assert scop.params == ("M",)

    @op
    def double(X: f32[...]) -> f32[...]:
        Y = empty(X.shape, f32)
        for i in grid(*X.shape):
            Y[i] = X[i] * 2
        return Y

    for shape in [(), (3,), (2, 3)]:
        check(double, rand(*shape) if shape else np.asarray(1.5, "f4"))
    with pytest.raises(Exception, match="any rank"):
        double.scop()


def test_constants_and_unrolling():
    coefficients = (0.25, 0.5, 0.25)

    def shifted(i: int, d: int) -> int:
        return i + d - 1

    @op
    def stencil(A: f32[N], *, scale: float = 2.0, bias: bool = False) -> f32[N]:
        B = empty((N,), f32)
        half = len(coefficients) // 2
        for i in range(N):
            if i < half or i >= N - half:
                B[i] = A[i]
            else:
                s = 0.0
                for d, c in enumerate(coefficients):
                    s += c * A[shifted(i, d)]
                B[i] = s * scale
                if bias:
                    B[i] += 1.0
        return B

    check(stencil, rand(7), sizes={"N": 7})
    check(stencil, rand(7), sizes={"N": 7}, scale=0.1, bias=True)
    assert len(stencil.scop().statements) + 1 == len(stencil.scop(bias=True).statements)


def test_run_time_scalars():
    @op
    def axpy(alpha: f32, X: f32[N], Y: inout(f32[N]), k: i32):
        for i in range(N):
            Y[i] += alpha * X[i] + k

    scop = check(axpy, np.float32(0.3), rand(5), rand(5), np.int32(3), sizes={"N": 5})
    assert scop.arrays["alpha"].scalar and scop.args == ("alpha", "X", "Y", "k")


def test_conv_with_affine_sizes():
    @op
    def conv(X: f32[N, M], W: f32[K, L], *, stride: int = 2) -> f32[(N - K) // 2 + 1, (M - L) // 2 + 1]:
        OH, OW = (N - K) // stride + 1, (M - L) // stride + 1
        Y = zeros((OH, OW), f32)
        for i, j in grid(OH, OW):
            for p, q in grid(K, L):
                Y[i, j] += X[i * stride + p, j * stride + q] * W[p, q]
        return Y

    check(conv, rand(7, 8), rand(3, 2), sizes={"N": 7, "M": 8, "K": 3, "L": 2})


def test_padding_by_conditional_expression():
    @op
    def pad(X: f32[N]) -> f32[N + 2]:
        Y = empty((N + 2,), f32)
        for i in range(N + 2):
            Y[i] = X[i - 1] if 0 < i < N + 1 else 0.0
        return Y

    check(pad, rand(4), sizes={"N": 4})


def test_several_results_and_inlined_operators():
    @op
    def norms(A: f32[M, N]) -> (f32[M], f32[M]):
        a, b = zeros((M,), f32), full((M,), -1e30, f32)
        for i, j in grid(M, N):
            a[i] += A[i, j] * A[i, j]
            b[i] = max(b[i], A[i, j])
        return a, b

    def root(x):
        y = sqrt(x)
        return where(y > 1, y, 1.0)

    @op
    def scaled(A: f32[K, K + 1], B: f32[K + 1, K]) -> f32[K, K]:
        P = matmul(A, B)
        n, m = norms(P)
        for i, j in grid(K, K):
            P[i, j] = P[i, j] / root(n[i]) + m[i]
        return P

    scop = check(scaled, rand(3, 4), rand(4, 3), sizes={"K": 3})
    reductions = [s.reduction for s in scop.statements.values()]
    assert reductions[:6] == [None, "+", None, None, "+", "max"]
    assert scop.results == ("C",) and scop.params == ("K",)


def test_helpers_with_early_return():
    def leaky(x):
        if x > 0:
            return x
        y = x * 0.1
        if y < -0.1:
            return -0.1
        return y

    @op
    def act(A: f32[N]) -> f32[N]:
        C = empty((N,), f32)
        for i in range(N):
            C[i] = leaky(A[i]) + leaky(A[N - 1 - i])
        return C

    check(act, rand(9), sizes={"N": 9})


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


@pytest.mark.parametrize("a,b", [(i8, f32), (u8, i8), (i32, f32), (i64, f64), (f32, f64), (bool_, f32), (u8, i64)])
def test_promotion(a, b):
    @op
    def mix(A: a[N], B: b[N]) -> (f64[N], f32[N], f64[N], f32[N]):
        P, Q, R, S = empty((N,), f64), empty((N,), f32), empty((N,), f64), empty((N,), f32)
        for i in range(N):
            P[i] = A[i] * B[i] + 3
            Q[i] = A[i] / 7
            R[i] = A[i] * 0.1 - i
            S[i] = where(B[i] > A[i], B[i], A[i]) * i / 3
        return P, Q, R, S

    x = (RNG.integers(0, 2 if a is bool_ else 11, 6)).astype(a.np)
    y = (RNG.integers(1, 11, 6)).astype(b.np)
    check(mix, x, y, sizes={"N": 6})


def test_integer_arithmetic():
    @op
    def bits(A: i32[N], B: i32[N]) -> (i32[N], bool_[N]):
        C, D = empty((N,), i32), empty((N,), bool_)
        for i in range(N):
            C[i] = ((A[i] & 12) | (B[i] << 2)) ^ (~A[i] >> 1)
            C[i] += A[i] // (B[i] + 20) + A[i] % 7 - abs(A[i]) ** 2
            D[i] = (A[i] > B[i]) ^ (A[i] == 3) or not A[i] < 5
        return C, D

    x, y = RNG.integers(-9, 9, (2, 12)).astype("i4")
    check(bits, x, y, sizes={"N": 12})


def test_sizes_given_by_name():
    assert matmul.scop(M=4, N=3).params == ("K",)


def test_python_functions_on_run_time_values():
    @op
    def mixed(X: f32[N, M]) -> (f32[N, M], i64[N, M]):
        Y, Z = empty(X.shape, X.dtype), empty(X.shape, i64)
        assert X.dtype == f32
        extents = X.shape
        for i in grid(*X.shape):
            around = [(i[0] + d, i[1] + e) for d in (-1, 0, 1) for e in (-1, 1)]
            s = 0.0
            for at in around:
                if all(0 <= p < n for p, n in zip(at, extents)):
                    s += X[at]
            row, column = divmod(i[0] * M + i[1], M)
            Y[i] = s if any(p == 0 for p in i) else np.float32(i[1]) + float(row)
            Z[i] = int(X[i] * 10) + column + sum(i) + abs(i[0] - 3) + bool(X[i] > 0)
        return Y, Z

    check(mixed, rand(3, 4), sizes={"N": 3, "M": 4})


def test_distance_and_membership_stay_affine():
    @op
    def banded(A: f32[N, N]) -> f32[N, N]:
        B = zeros((N, N), f32)
        for i, j in grid(N, N):
            if abs(i - j) <= 1 or i in (0, N - 1):
                B[i, j] = A[i, j]
            if j not in (1, 2) and (i, j) != (3, 3):
                B[i, j] += abs(A[j, i]) * abs(j - 2)
        return B

    scop = check(banded, rand(6, 6), sizes={"N": 6})
    assert all(s.predicate is None for s in scop.statements.values())


def test_a_range_of_unknown_length_is_no_list():
    @op
    def numbered(X: inout(f32[N])):
        for k, i in enumerate(range(N)):
            X[i] = k

    check_refused(numbered, "enumerate of a range")


def check_refused(operator, reason: str):
    with pytest.raises(DslError, match=reason):
        operator.scop()


def test_numbers_are_weak_until_they_meet_arrays():
    @op
    def weak(X: f32[N], Y: bf16[N], Z: f16[N]) -> (f32[N], bf16[N], f16[N]):
        A, B, C = empty((N,), f32), empty((N,), bf16), empty((N,), f16)
        scale = 1 / 3
        for i in range(N):
            w = i / N * scale
            A[i] = X[i] * w + scale
            B[i] = Y[i] * w + i * 2
            C[i] = Z[i] * w - scale * i
        return A, B, C

    x = rand(5)
    check(weak, x, x.astype(bf16.np), x.astype(f16.np), sizes={"N": 5})


def test_negative_constants_count_from_the_end():
    @op
    def ends(X: f32[N, N]) -> f32[2]:
        Y = empty((2,), f32)
        Y[0] = X[-1, 0]
        Y[-1] = X[0, -1]
        return Y

    check(ends, rand(4, 4), sizes={"N": 4})


def test_sizes_that_are_solved_for():
    @op
    def odd(X: f32[2 * N + 1], Y: f32[N - 3]) -> f32[N]:
        Z = zeros((N,), f32)
        for i in range(N):
            Z[i] = X[2 * i + 1]
        return Z

    scop = check(odd, rand(11), rand(2), sizes={"N": 5})
    assert scop.params == ("N",)
    with pytest.raises(ArgumentError, match="axis 0 of X is 12, which is not 2 \\* N \\+ 1 for any N"):
        odd.python(rand(12), rand(2))
    with pytest.raises(ArgumentError, match="axis 0 of Y is 3, expected N - 3 = 2"):
        odd.python(rand(11), rand(3))


def test_arguments_are_checked():
    a, b = rand(3, 4), rand(4, 5)
    for args, text in [
        ((a,), "no value for B"),
        ((a, b, b), "takes 2 arguments, not 3"),
        ((a, b.astype("f8")), "B is f32, the argument is f64"),
        ((a, b[0]), "B has 2 axes, the argument has 1"),
        ((a, b.T), "axis 0 of B is 5, expected K = 4"),
        ((a, [1.0]), "B takes a NumPy array, the argument is a list"),
        ((a, b.astype("c8")), "B is f32, the argument is complex64"),
    ]:
        with pytest.raises(ArgumentError, match=text):
            matmul.python(*args)
    with pytest.raises(ArgumentError, match="has no constant, size or array named P"):
        matmul.scop(P=3)


def test_poison_shows_what_is_never_written():
    @op
    def half(X: f32[N]) -> (f32[N], i32[N]):
        Y, Z = empty((N,), f32), empty((N,), i32)
        for i in range(N // 2):
            Y[i] = X[i]
            Z[i] = 1
        return Y, Z

    y, z = half.python(rand(4))
    assert np.isnan(y[2:]).all() and (z[2:] == 2**31 - 1).all()


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


def test_small_sizes_that_do_not_fit_are_left_out_of_the_context():
    @op
    def second(X: f32[N]) -> f32[1]:
        Y = empty((1,), f32)
        Y[0] = X[1]
        return Y

    scop = second.scop()
    assert "N > 1" in str(scop.context) or "N >= 2" in str(scop.context)
    assert "assumes" in scop.notes[0]
    with pytest.raises(DslError, match="subscript 0 of X is out of bounds: 1, the extent is 1"):
        second.scop(N=1)


def test_values_in_tuples_are_those_of_their_time():
    @op
    def tuples(A: inout(f64[N]), n: inout(i64[2])) -> f64[N]:
        B = zeros((N,), f64)
        pair = (A[0], A[1])
        table = {"first": A[2]}
        extent = range(n[0], n[1])
        A[0] = 7.0
        A[1] = 8.0
        A[2] = 9.0
        n[1] = 0
        B[0] = pair[0] + table["first"]
        for i in extent:
            B[i] += 1
        for k, x in enumerate((A[3], A[4])):
            A[4] = x * 2
            B[k] += x
        pairs = zip((A[0], A[1]), (1, 2))
        A[1] = 0.5
        for x, k in pairs:
            B[k] += x
        return B

    scop = tuples.scop(N=5)  # A[4] exists from this size on
    a, n = rand(5, dtype="f8"), np.array([1, 3])
    wanted = a.copy()
    expected = tuples.python(wanted, n.copy())
    after = run(scop, a, n, sizes={})
    np.testing.assert_array_equal(after["B"], expected)
    np.testing.assert_array_equal(after["A"], wanted)


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
    with pytest.raises(ArgumentError, match="arguments"):
        _shifted(False)(x, b)
