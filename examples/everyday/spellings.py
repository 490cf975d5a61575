"""One thing in several spellings: products, convolutions, softmax, attention, edges."""

import numpy as np

from polyc import (
    dims,
    empty,
    exp,
    f32,
    f64,
    i32,
    inout,
    op,
    sqrt,
    zeros,
)

N, M, K, T, C, H, W, B, D, E = dims("N M K T C H W B D E")


@op
def gemm_ikj(A: f32[N, K], Bm: f32[K, M]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for i in range(N):
        for k in range(K):
            a = A[i, k]
            for j in range(M):
                R[i, j] = R[i, j] + a * Bm[k, j]
    return R


@op
def gemm_tiled_by_hand(A: f32[N, K], Bm: f32[K, M]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for ii in range(0, N, 32):
        for jj in range(0, M, 32):
            for kk in range(0, K, 32):
                for i in range(ii, min(ii + 32, N)):
                    for j in range(jj, min(jj + 32, M)):
                        for k in range(kk, min(kk + 32, K)):
                            R[i, j] += A[i, k] * Bm[k, j]
    return R


@op
def gemm_flat(A: f32[N * K], Bm: f32[K * M]) -> f32[N * M]:
    R = zeros((N * M,), f32)
    for i in range(N):
        for j in range(M):
            for k in range(K):
                R[i * M + j] += A[i * K + k] * Bm[k * M + j]
    return R


@op
def gemm_temp_row(A: f32[N, K], Bm: f32[K, M]) -> f32[N, M]:
    R = empty((N, M), f32)
    row = empty((M,), f32)
    for i in range(N):
        for j in range(M):
            row[j] = 0.0
        for k in range(K):
            for j in range(M):
                row[j] += A[i, k] * Bm[k, j]
        for j in range(M):
            R[i, j] = row[j]
    return R


@op
def gemm_unrolled_k(A: f32[N, K], Bm: f32[K, M]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for i in range(N):
        for j in range(M):
            s = 0.0
            for k in range(0, K, 4):
                s += A[i, k] * Bm[k, j]
                s += A[i, k + 1] * Bm[k + 1, j]
                s += A[i, k + 2] * Bm[k + 2, j]
                s += A[i, k + 3] * Bm[k + 3, j]
            R[i, j] = s
    return R


@op
def gemm_masked_causal(A: f32[N, K], Bm: f32[N, K]) -> f32[N, N]:
    R = zeros((N, N), f32)
    for i in range(N):
        for j in range(N):
            if j <= i:
                s = 0.0
                for k in range(K):
                    s += A[i, k] * Bm[j, k]
                R[i, j] = s
            else:
                R[i, j] = -1e9
    return R


@op
def conv_padded_if(X: f32[C, H, W], F: f32[K, C, 3, 3]) -> f32[K, H, W]:
    Y = zeros((K, H, W), f32)
    for k in range(K):
        for y in range(H):
            for x in range(W):
                s = 0.0
                for c in range(C):
                    for a in range(3):
                        for b in range(3):
                            if y + a - 1 >= 0 and y + a - 1 < H and x + b - 1 >= 0 and x + b - 1 < W:
                                s += X[c, y + a - 1, x + b - 1] * F[k, c, a, b]
                Y[k, y, x] = s
    return Y


@op
def conv_padded_where(X: f32[C, H, W], F: f32[K, C, 3, 3]) -> f32[K, H, W]:
    Y = zeros((K, H, W), f32)
    for k in range(K):
        for y in range(H):
            for x in range(W):
                for c in range(C):
                    for a in range(3):
                        for b in range(3):
                            v = X[c, y + a - 1, x + b - 1] if 0 <= y + a - 1 < H and 0 <= x + b - 1 < W else 0.0
                            Y[k, y, x] += v * F[k, c, a, b]
    return Y


@op
def conv_nhwc(X: f32[H, W, C], F: f32[3, 3, C, K]) -> f32[H - 2, W - 2, K]:
    Y = zeros((H - 2, W - 2, K), f32)
    for y in range(H - 2):
        for x in range(W - 2):
            for a in range(3):
                for b in range(3):
                    for c in range(C):
                        for k in range(K):
                            Y[y, x, k] += X[y + a, x + b, c] * F[a, b, c, k]
    return Y


@op
def conv_strided_bias_relu(X: f32[C, 2 * H + 1, 2 * W + 1], F: f32[K, C, 3, 3], b: f32[K]) -> f32[K, H, W]:
    Y = empty((K, H, W), f32)
    for k in range(K):
        for y in range(H):
            for x in range(W):
                s = b[k]
                for c in range(C):
                    for p in range(3):
                        for q in range(3):
                            s += X[c, 2 * y + p, 2 * x + q] * F[k, c, p, q]
                Y[k, y, x] = s if s > 0 else 0.0
    return Y


@op
def softmax_two_pass(X: f32[N, M]) -> f32[N, M]:
    Y = empty((N, M), f32)
    for i in range(N):
        m = X[i, 0]
        d = 0.0
        for j in range(M):
            mn = max(m, X[i, j])
            d = d * exp(m - mn) + exp(X[i, j] - mn)
            m = mn
        for j in range(M):
            Y[i, j] = exp(X[i, j] - m) / d
    return Y


@op
def welford(X: f32[N, M]) -> (f32[N], f32[N]):
    A = empty((N,), f32)
    V = empty((N,), f32)
    for i in range(N):
        mean = 0.0
        m2 = 0.0
        for j in range(M):
            d = X[i, j] - mean
            mean += d / (j + 1)
            m2 += d * (X[i, j] - mean)
        A[i] = mean
        V[i] = m2 / M
    return A, V


@op
def flash(Q: f32[T, D], Kk: f32[T, D], V: f32[T, D]) -> f32[T, D]:
    O = empty((T, D), f32)
    for i in range(T):
        m = -1e30
        l = 0.0
        acc = zeros((D,), f32)
        for j in range(T):
            s = 0.0
            for d in range(D):
                s += Q[i, d] * Kk[j, d]
            mn = max(m, s)
            a = exp(m - mn)
            p = exp(s - mn)
            l = l * a + p
            for d in range(D):
                acc[d] = acc[d] * a + p * V[j, d]
            m = mn
        for d in range(D):
            O[i, d] = acc[d] / l
    return O


@op
def mha(Q: f32[T, H * D], Kk: f32[T, H * D], V: f32[T, H * D]) -> f32[T, H * D]:
    O = empty((T, H * D), f32)
    for h in range(H):
        for i in range(T):
            p = empty((T,), f32)
            m = -1e30
            for j in range(T):
                s = 0.0
                for d in range(D):
                    s += Q[i, h * D + d] * Kk[j, h * D + d]
                p[j] = s * 0.125
                m = max(m, p[j])
            z = 0.0
            for j in range(T):
                p[j] = exp(p[j] - m)
                z += p[j]
            for d in range(D):
                o = 0.0
                for j in range(T):
                    o += p[j] * V[j, h * D + d]
                O[i, h * D + d] = o / z
    return O


@op
def gru_seq(X: f32[T, D], Wz: f32[D, D], Uz: f32[D, D], Wh: f32[D, D], Uh: f32[D, D]) -> f32[T, D]:
    Y = empty((T, D), f32)
    h = zeros((D,), f32)
    for t in range(T):
        hn = empty((D,), f32)
        for i in range(D):
            z = 0.0
            c = 0.0
            for j in range(D):
                z += X[t, j] * Wz[j, i] + h[j] * Uz[j, i]
                c += X[t, j] * Wh[j, i] + h[j] * Uh[j, i]
            z = 1 / (1 + exp(-z))
            hn[i] = z * h[i] + (1 - z) * (c / (1 + abs(c)))
        for i in range(D):
            h[i] = hn[i]
            Y[t, i] = hn[i]
    return Y


@op
def heat_ping(A0: f64[N, N]) -> f64[N, N]:
    A = empty((2, N, N), f64)
    R = empty((N, N), f64)
    for i in range(N):
        for j in range(N):
            A[0, i, j] = A0[i, j]
            A[1, i, j] = A0[i, j]
    for t in range(20):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[(t + 1) % 2, i, j] = 0.2 * (
                    A[t % 2, i, j] + A[t % 2, i - 1, j] + A[t % 2, i + 1, j] + A[t % 2, i, j - 1] + A[t % 2, i, j + 1]
                )
    for i in range(N):
        for j in range(N):
            R[i, j] = A[0, i, j]
    return R


@op
def red_black(A: inout(f64[N, N])):
    for t in range(10):
        for c in range(2):
            for i in range(1, N - 1):
                for j in range(1, N - 1):
                    if (i + j + c) % 2 == 0:
                        A[i, j] = 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])


@op
def lu_inplace(A: inout(f64[N, N])):
    for k in range(N):
        for i in range(k + 1, N):
            A[i, k] = A[i, k] / A[k, k]
        for i in range(k + 1, N):
            for j in range(k + 1, N):
                A[i, j] = A[i, j] - A[i, k] * A[k, j]


@op
def gauss_solve(A: inout(f64[N, N]), b: inout(f64[N])):
    for k in range(N - 1):
        for i in range(k + 1, N):
            f = A[i, k] / A[k, k]
            for j in range(k, N):
                A[i, j] -= f * A[k, j]
            b[i] -= f * b[k]
    for i in range(N - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, N):
            s -= A[i, j] * b[j]
        b[i] = s / A[i, i]


@op
def mgs_qr(A: inout(f64[M, N]), R: inout(f64[N, N])):
    for k in range(N):
        s = 0.0
        for i in range(M):
            s += A[i, k] * A[i, k]
        R[k, k] = sqrt(s)
        for i in range(M):
            A[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, N):
            d = 0.0
            for i in range(M):
                d += A[i, k] * A[i, j]
            R[k, j] = d
            for i in range(M):
                A[i, j] -= d * A[i, k]


@op
def matvec_t(A: f32[N, M], x: f32[N]) -> f32[M]:
    y = zeros((M,), f32)
    for j in range(M):
        for i in range(N):
            y[j] += A[i, j] * x[i]
    return y


@op
def outer_chain(a: f32[N], b: f32[M], c: f32[M]) -> f32[N]:
    P = empty((N, M), f32)
    r = zeros((N,), f32)
    for i in range(N):
        for j in range(M):
            P[i, j] = a[i] * b[j]
    for i in range(N):
        for j in range(M):
            r[i] += P[i, j] * c[j]
    return r


@op
def pairwise_l1(X: f32[N, D], Y: f32[M, D]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for i in range(N):
        for j in range(M):
            for k in range(D):
                R[i, j] += abs(X[i, k] - Y[j, k])
    return R


@op
def hist2d(X: f32[N], Y: f32[N]) -> i32[32, 32]:
    R = zeros((32, 32), i32)
    for n in range(N):
        R[i32(X[n] * 32), i32(Y[n] * 32)] += 1
    return R


@op
def moving_max(X: f32[N]) -> f32[N]:
    Y = zeros((N,), f32)
    for i in range(15, N):
        m = X[i]
        for k in range(1, 16):
            m = max(m, X[i - k])
        Y[i] = m
    return Y


@op
def savgol(X: f32[B, N], G: f32[11]) -> f32[B, N]:
    Y = empty((B, N), f32)
    for b in range(B):
        for i in range(N):
            s = 0.0
            for k in range(11):
                j = min(max(i + k - 5, 0), N - 1)
                s += G[k] * X[b, j]
            Y[b, i] = s
    return Y


@op
def roll_periodic(X: f64[N, N]) -> f64[N, N]:
    Y = empty((N, N), f64)
    for i in range(N):
        for j in range(N):
            Y[i, j] = X[i, j] + 0.1 * (
                X[(i + 1) % N, j] + X[(i - 1 + N) % N, j] + X[i, (j + 1) % N] + X[i, (j - 1 + N) % N] - 4 * X[i, j]
            )
    return Y


@op
def blur_clamp(X: f32[H, W], G: f32[3, 3]) -> f32[H, W]:
    Y = empty((H, W), f32)
    for i in range(H):
        for j in range(W):
            s = 0.0
            for a in range(3):
                for b in range(3):
                    s += G[a, b] * X[min(max(i + a - 1, 0), H - 1), min(max(j + b - 1, 0), W - 1)]
            Y[i, j] = s
    return Y


@op
def blur_wrap(X: f32[H, W], G: f32[5]) -> f32[H, W]:
    Y = empty((H, W), f32)
    for i in range(H):
        for j in range(W):
            s = 0.0
            for b in range(5):
                s += G[b] * X[i, (j + b - 2 + W) % W]
            Y[i, j] = s
    return Y


NAMED = ("gemm_flat", "mha")
"""Programs whose sizes the shapes of their arguments do not tell."""

SIZES = {
    # to be timed with, and to be compared with plain Python
    "gemm_ikj": (dict(N=384, K=384, M=384), dict(N=5, K=6, M=7)),
    "gemm_tiled_by_hand": (dict(N=384, K=384, M=384), dict(N=5, K=6, M=7)),
    "gemm_flat": (dict(N=384, K=384, M=384), dict(N=5, K=6, M=7)),
    "gemm_temp_row": (dict(N=384, K=384, M=384), dict(N=5, K=6, M=7)),
    "gemm_unrolled_k": (dict(N=384, K=384, M=384), dict(N=5, K=8, M=7)),
    "gemm_masked_causal": (dict(N=384, K=64), dict(N=5, K=6)),
    "conv_padded_if": (dict(C=16, K=16, H=56, W=56), dict(C=2, K=3, H=5, W=6)),
    "conv_padded_where": (dict(C=16, K=16, H=56, W=56), dict(C=2, K=3, H=5, W=6)),
    "conv_nhwc": (dict(C=16, K=32, H=58, W=58), dict(C=2, K=3, H=5, W=6)),
    "conv_strided_bias_relu": (dict(C=16, K=32, H=28, W=28), dict(C=2, K=3, H=3, W=4)),
    "softmax_two_pass": (dict(N=500, M=1000), dict(N=5, M=7)),
    "welford": (dict(N=500, M=1000), dict(N=5, M=7)),
    "flash": (dict(T=256, D=64), dict(T=5, D=4)),
    "mha": (dict(T=128, H=8, D=64), dict(T=5, H=2, D=3)),
    "gru_seq": (dict(T=64, D=128), dict(T=4, D=5)),
    "heat_ping": (dict(N=500), dict(N=7)),
    "red_black": (dict(N=500), dict(N=7)),
    "lu_inplace": (dict(N=400), dict(N=7)),
    "gauss_solve": (dict(N=400), dict(N=7)),
    "mgs_qr": (dict(M=400, N=200), dict(M=7, N=5)),
    "matvec_t": (dict(N=2000, M=1000), dict(N=7, M=5)),
    "outer_chain": (dict(N=1000, M=1000), dict(N=7, M=5)),
    "pairwise_l1": (dict(N=500, M=500, D=64), dict(N=5, M=6, D=3)),
    "hist2d": (dict(N=200000), dict(N=50)),
    "moving_max": (dict(N=200000), dict(N=50)),
    "savgol": (dict(B=64, N=4000), dict(B=2, N=15)),
    "roll_periodic": (dict(N=500), dict(N=7)),
    "blur_clamp": (dict(H=480, W=640), dict(H=5, W=6)),
    "blur_wrap": (dict(H=480, W=640), dict(H=5, W=6)),
}


def values(name, argument, dtype, shape, sizes, rng):
    """Inputs that are not any: None for those that are."""
    x = rng.random(shape)
    if name in ("lu_inplace", "gauss_solve") and len(shape) == 2:
        return x + np.eye(shape[0]) * shape[0]
    if name == "gru_seq":
        return ((x - 0.5) * 0.2).astype(dtype)
    return None
