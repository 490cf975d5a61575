"""Whole programs by sizes, arguments, types and values of Python: enumerated Scops equal plain Python, bit for bit."""

import numpy as np
import pytest
from brute_force import RNG, check, check_refused, rand, run

from examples.matmul import matmul
from polyc.frontend_dsl import DslError, const_range, dims, empty, exp, full, grid, inout, op, sqrt, where, zeros
from polyc.poly.dtypes import bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from polyc.poly.errors import ArgumentError, BoundsError

L, M, N, K = dims("L M N K")


def test_matmul():
    scop = check(matmul, rand(3, 4), rand(4, 5), sizes={"M": 3, "K": 4, "N": 5})
    assert list(scop.statements) == ["S0", "S1"]
    assert [s.reduction for s in scop.statements.values()] == [None, "+"]
    assert scop.statements["S1"].iters == ("i", "j", "k")
    assert (scop.args, scop.results, scop.params) == (("A", "B"), ("C",), ("M", "K", "N"))


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
    with pytest.raises(ArgumentError, match="any rank"):
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


def test_other_negative_subscripts_are_outside():
    @op
    def before(X: f32[N]) -> f32[2]:
        Y = empty((2,), f32)
        for k in const_range(2):
            Y[k] = X[k - 1]
        return Y

    with pytest.raises(DslError, match="subscript 0 of X is out of bounds: -1"):
        before.scop()
    with pytest.raises(BoundsError, match="index -1 is out of bounds for axis 0 of 'X'"):
        before.python(rand(4))


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
