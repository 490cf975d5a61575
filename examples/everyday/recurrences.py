"""Tables of dynamic programming, recurrences along rows, small matrices."""

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
    u8,
    zeros,
)

N, M, K, T, C, H, W, B, D = dims("N M K T C H W B D")


@op
def lcs_where(A: i32[N], Bb: i32[M]) -> i32[N + 1, M + 1]:
    L = zeros((N + 1, M + 1), i32)
    for i in range(1, N + 1):
        for j in range(1, M + 1):
            L[i, j] = L[i - 1, j - 1] + 1 if A[i - 1] == Bb[j - 1] else max(L[i - 1, j], L[i, j - 1])
    return L


@op
def lcs_max(A: i32[N], Bb: i32[M]) -> i32[N + 1, M + 1]:
    L = zeros((N + 1, M + 1), i32)
    for i in range(1, N + 1):
        for j in range(1, M + 1):
            m = max(L[i - 1, j], L[i, j - 1])
            L[i, j] = max(m, L[i - 1, j - 1] + (1 if A[i - 1] == Bb[j - 1] else 0))
    return L


@op
def edit(A: i32[N], Bb: i32[M]) -> i32[N + 1, M + 1]:
    L = zeros((N + 1, M + 1), i32)
    for i in range(N + 1):
        L[i, 0] = i
    for j in range(M + 1):
        L[0, j] = j
    for i in range(1, N + 1):
        for j in range(1, M + 1):
            cost = 0 if A[i - 1] == Bb[j - 1] else 1
            L[i, j] = min(min(L[i - 1, j] + 1, L[i, j - 1] + 1), L[i - 1, j - 1] + cost)
    return L


@op
def edit_last(A: i32[N], Bb: i32[M]) -> i32[1]:
    P = empty((M + 1,), i32)
    Q = empty((M + 1,), i32)
    R = empty((1,), i32)
    for j in range(M + 1):
        P[j] = j
    for i in range(1, N + 1):
        Q[0] = i
        for j in range(1, M + 1):
            cost = 0 if A[i - 1] == Bb[j - 1] else 1
            Q[j] = min(min(P[j] + 1, Q[j - 1] + 1), P[j - 1] + cost)
        for j in range(M + 1):
            P[j] = Q[j]
    R[0] = P[M]
    return R


@op
def sw(A: i32[N], Bb: i32[M]) -> f32[N + 1, M + 1]:
    Hm = zeros((N + 1, M + 1), f32)
    for i in range(1, N + 1):
        for j in range(1, M + 1):
            s = 2.0 if A[i - 1] == Bb[j - 1] else -1.0
            Hm[i, j] = max(0.0, max(Hm[i - 1, j - 1] + s, max(Hm[i - 1, j] - 1.0, Hm[i, j - 1] - 1.0)))
    return Hm


@op
def dtw(X: f32[N], Y: f32[M]) -> f32[N, M]:
    Dm = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            c = abs(X[i] - Y[j])
            if i == 0 and j == 0:
                Dm[i, j] = c
            elif i == 0:
                Dm[i, j] = c + Dm[i, j - 1]
            elif j == 0:
                Dm[i, j] = c + Dm[i - 1, j]
            else:
                Dm[i, j] = c + min(Dm[i - 1, j], min(Dm[i, j - 1], Dm[i - 1, j - 1]))
    return Dm


@op
def cumsum_rows(X: f32[N, M]) -> f32[N, M]:
    Y = empty((N, M), f32)
    for i in range(N):
        s = 0.0
        for j in range(M):
            s += X[i, j]
            Y[i, j] = s
    return Y


@op
def biquad(X: f32[N, T]) -> f32[N, T]:
    Y = empty((N, T), f32)
    for i in range(N):
        x1 = 0.0
        x2 = 0.0
        y1 = 0.0
        y2 = 0.0
        for t in range(T):
            y = 0.2 * X[i, t] + 0.4 * x1 + 0.2 * x2 + 0.5 * y1 - 0.1 * y2
            x2 = x1
            x1 = X[i, t]
            y2 = y1
            y1 = y
            Y[i, t] = y
    return Y


@op
def small_inverse(A: f32[B, 4, 4], X: f32[B, 4]) -> f32[B, 4]:
    Y = empty((B, 4), f32)
    for b in range(B):
        for i in range(4):
            s = 0.0
            for j in range(4):
                s += A[b, i, j] * X[b, j]
            Y[b, i] = s
    return Y


@op
def small_chol(A: f32[B, 6, 6]) -> f32[B, 6, 6]:
    L = zeros((B, 6, 6), f32)
    for b in range(B):
        for j in range(6):
            s = A[b, j, j]
            for k in range(j):
                s -= L[b, j, k] * L[b, j, k]
            L[b, j, j] = sqrt(s)
            for i in range(j + 1, 6):
                r = A[b, i, j]
                for k in range(j):
                    r -= L[b, i, k] * L[b, j, k]
                L[b, i, j] = r / L[b, j, j]
    return L


@op
def rot_points(P: f32[N, 3], Q: f32[N, 4]) -> f32[N, 3]:
    Y = empty((N, 3), f32)
    for i in range(N):
        w = Q[i, 0]
        x = Q[i, 1]
        y = Q[i, 2]
        z = Q[i, 3]
        Y[i, 0] = (1 - 2 * (y * y + z * z)) * P[i, 0] + 2 * (x * y - z * w) * P[i, 1] + 2 * (x * z + y * w) * P[i, 2]
        Y[i, 1] = 2 * (x * y + z * w) * P[i, 0] + (1 - 2 * (x * x + z * z)) * P[i, 1] + 2 * (y * z - x * w) * P[i, 2]
        Y[i, 2] = 2 * (x * z - y * w) * P[i, 0] + 2 * (y * z + x * w) * P[i, 1] + (1 - 2 * (x * x + y * y)) * P[i, 2]
    return Y


@op
def gauss_blur_sep(X: f32[H, W], G: f32[9]) -> f32[H, W]:
    Tm = zeros((H, W), f32)
    Y = zeros((H, W), f32)
    for i in range(H):
        for j in range(4, W - 4):
            s = 0.0
            for k in range(9):
                s += G[k] * X[i, j + k - 4]
            Tm[i, j] = s
    for i in range(4, H - 4):
        for j in range(W):
            s = 0.0
            for k in range(9):
                s += G[k] * Tm[i + k - 4, j]
            Y[i, j] = s
    return Y


@op
def power_iter(A: f32[N, N], v0: f32[N]) -> f32[N]:
    v = empty((N,), f32)
    w = empty((N,), f32)
    for i in range(N):
        v[i] = v0[i]
    for t in range(20):
        n = 0.0
        for i in range(N):
            s = 0.0
            for j in range(N):
                s += A[i, j] * v[j]
            w[i] = s
            n += s * s
        r = 1 / sqrt(n)
        for i in range(N):
            v[i] = w[i] * r
    return v


@op
def lstm_like(X: f32[T, D], Wx: f32[D, D], Wh: f32[D, D]) -> f32[T, D]:
    Hh = zeros((T + 1, D), f32)
    Y = empty((T, D), f32)
    for t in range(T):
        for i in range(D):
            s = 0.0
            for j in range(D):
                s += X[t, j] * Wx[j, i] + Hh[t, j] * Wh[j, i]
            Hh[t + 1, i] = s / (1 + abs(s))
        for i in range(D):
            Y[t, i] = Hh[t + 1, i]
    return Y


@op
def moe_gate(X: f32[T, D], Wg: f32[K, D]) -> (f32[T, K], i32[T, 2]):
    G = empty((T, K), f32)
    I = zeros((T, 2), i32)
    for t in range(T):
        for k in range(K):
            s = 0.0
            for d in range(D):
                s += X[t, d] * Wg[k, d]
            G[t, k] = s
        a = 0
        va = -1e30
        b = 0
        vb = -1e30
        for k in range(K):
            if G[t, k] > va:
                vb = va
                b = a
                va = G[t, k]
                a = k
            elif G[t, k] > vb:
                vb = G[t, k]
                b = k
        I[t, 0] = a
        I[t, 1] = b
    return G, I


@op
def quant_rows(X: f32[N, M]) -> (f32[N], u8[N, M]):
    S = empty((N,), f32)
    Q = empty((N, M), u8)
    for i in range(N):
        lo = X[i, 0]
        hi = X[i, 0]
        for j in range(M):
            lo = min(lo, X[i, j])
            hi = max(hi, X[i, j])
        S[i] = (hi - lo) / 255 + 1e-9
        for j in range(M):
            Q[i, j] = u8((X[i, j] - lo) / S[i])
    return S, Q


@op
def heat_implicit(U: inout(f64[N, M])):
    c = empty((M,), f64)
    d = empty((M,), f64)
    for i in range(N):
        c[0] = -0.25
        d[0] = U[i, 0]
        for j in range(1, M):
            m = 1.0 / (1.5 + 0.25 * c[j - 1])
            c[j] = -0.25 * m
            d[j] = (U[i, j] + 0.25 * d[j - 1]) * m
        U[i, M - 1] = d[M - 1]
        for j in range(M - 2, -1, -1):
            U[i, j] = d[j] - c[j] * U[i, j + 1]


@op
def spmv_ell(V: f32[N, 8], I: i32[N, 8], X: f32[M]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        s = 0.0
        for k in range(8):
            s += V[i, k] * X[I[i, k]]
        Y[i] = s
    return Y


@op
def softmax_bwd(Y: f32[N, M], G: f32[N, M]) -> f32[N, M]:
    R = empty((N, M), f32)
    for i in range(N):
        s = 0.0
        for j in range(M):
            s += Y[i, j] * G[i, j]
        for j in range(M):
            R[i, j] = Y[i, j] * (G[i, j] - s)
    return R


@op
def transpose_add(A: f32[N, M], Bm: f32[M, N]) -> f32[N, M]:
    R = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            R[i, j] = A[i, j] + Bm[j, i]
    return R


@op
def complex_mm(Ar: f32[N, K], Ai: f32[N, K], Br: f32[K, M], Bi: f32[K, M]) -> (f32[N, M], f32[N, M]):
    Cr = zeros((N, M), f32)
    Ci = zeros((N, M), f32)
    for i in range(N):
        for j in range(M):
            for k in range(K):
                Cr[i, j] += Ar[i, k] * Br[k, j] - Ai[i, k] * Bi[k, j]
                Ci[i, j] += Ar[i, k] * Bi[k, j] + Ai[i, k] * Br[k, j]
    return Cr, Ci


@op
def masked_mm(A: f32[N, K], Bm: f32[K, M], Mk: u8[N, M]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for i in range(N):
        for j in range(M):
            s = 0.0
            for k in range(K):
                s += A[i, k] * Bm[k, j]
            if Mk[i, j] > 0:
                R[i, j] = s
    return R


@op
def rbf_kernel(X: f32[N, D], Y: f32[M, D], g: f32) -> f32[N, M]:
    R = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            d2 = 0.0
            for k in range(D):
                t = X[i, k] - Y[j, k]
                d2 += t * t
            R[i, j] = exp(-g * d2)
    return R


@op
def mahalanobis(X: f32[N, D], mu: f32[D], P: f32[D, D]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        s = 0.0
        for a in range(D):
            for b in range(D):
                s += (X[i, a] - mu[a]) * P[a, b] * (X[i, b] - mu[b])
        Y[i] = s
    return Y


@op
def bilinear_form(X: f32[N, D], Wt: f32[K, D, D], Y: f32[N, D]) -> f32[N, K]:
    R = empty((N, K), f32)
    for n in range(N):
        for k in range(K):
            s = 0.0
            for a in range(D):
                for b in range(D):
                    s += X[n, a] * Wt[k, a, b] * Y[n, b]
            R[n, k] = s
    return R


@op
def conv3d(X: f32[C, H, H, W], F: f32[K, C, 3, 3, 3]) -> f32[K, H - 2, H - 2, W - 2]:
    Y = zeros((K, H - 2, H - 2, W - 2), f32)
    for k in range(K):
        for c in range(C):
            for z in range(H - 2):
                for y in range(H - 2):
                    for x in range(W - 2):
                        for a in range(3):
                            for b in range(3):
                                for d in range(3):
                                    Y[k, z, y, x] += X[c, z + a, y + b, x + d] * F[k, c, a, b, d]
    return Y


SIZES = {
    # to be timed with, and to be compared with plain Python
    "lcs_where": (dict(N=2000, M=2000), dict(N=9, M=12)),
    "lcs_max": (dict(N=2000, M=2000), dict(N=9, M=12)),
    "edit": (dict(N=2000, M=2000), dict(N=9, M=12)),
    "edit_last": (dict(N=2000, M=2000), dict(N=9, M=12)),
    "sw": (dict(N=2000, M=2000), dict(N=9, M=12)),
    "dtw": (dict(N=2000, M=2000), dict(N=9, M=12)),
    "cumsum_rows": (dict(N=1000, M=1000), dict(N=9, M=12)),
    "biquad": (dict(N=256, T=4000), dict(N=9, T=12)),
    "small_inverse": (dict(B=20000), dict(B=7)),
    "small_chol": (dict(B=5000), dict(B=3)),
    "rot_points": (dict(N=50000), dict(N=7)),
    "gauss_blur_sep": (dict(H=720, W=1280), dict(H=11, W=13)),
    "power_iter": (dict(N=500), dict(N=7)),
    "lstm_like": (dict(T=64, D=256), dict(T=5, D=6)),
    "moe_gate": (dict(T=512, D=256, K=16), dict(T=5, D=6, K=5)),
    "quant_rows": (dict(N=1000, M=1000), dict(N=6, M=7)),
    "heat_implicit": (dict(N=500, M=500), dict(N=6, M=7)),
    "spmv_ell": (dict(N=100000, M=20000), dict(N=9, M=5)),
    "softmax_bwd": (dict(N=1000, M=1000), dict(N=6, M=7)),
    "transpose_add": (dict(N=1000, M=1200), dict(N=6, M=7)),
    "complex_mm": (dict(N=256, K=256, M=256), dict(N=6, K=5, M=7)),
    "masked_mm": (dict(N=256, K=256, M=256), dict(N=6, K=5, M=7)),
    "rbf_kernel": (dict(N=1000, M=1000, D=16), dict(N=6, M=5, D=7)),
    "mahalanobis": (dict(N=5000, D=32), dict(N=6, D=5)),
    "bilinear_form": (dict(N=200, K=20, D=48), dict(N=5, K=3, D=6)),
    "conv3d": (dict(C=4, K=8, H=34, W=66), dict(C=2, K=3, H=5, W=6)),
}


def values(name, argument, dtype, shape, sizes, rng):
    """Inputs that are not any: None for those that are."""
    if name == "small_chol":
        x = rng.random((shape[0], 6, 6))
        return (x @ x.transpose(0, 2, 1) + 6 * np.eye(6)).astype(dtype)
    if name in ("lstm_like",):
        return (rng.random(shape) * 0.1 - 0.05).astype(dtype)
    if name == "masked_mm" and argument == "Mk":
        return rng.integers(0, 2, shape).astype(np.uint8)
    if name == "dtw":
        return rng.random(shape).astype(dtype)
    return None
