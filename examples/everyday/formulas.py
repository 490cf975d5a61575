"""Formulas element by element, images, layers and their derivatives."""

import numpy as np

from polyc import (
    dims,
    empty,
    erf,
    exp,
    f32,
    f64,
    i32,
    inout,
    log,
    op,
    sqrt,
    tanh,
    u8,
    u32,
    zeros,
)

N, M, K, T, C, H, W, B, D, E = dims("N M K T C H W B D E")


@op
def horner(X: f32[N], Co: f32[8]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        s = 0.0
        for k in range(8):
            s = s * X[i] + Co[k]
        Y[i] = s
    return Y


@op
def black_scholes(S: f32[N], Kx: f32[N], Tm: f32[N], r: f32, v: f32) -> f32[N]:
    P = empty((N,), f32)
    for i in range(N):
        d1 = (log(S[i] / Kx[i]) + (r + 0.5 * v * v) * Tm[i]) / (v * sqrt(Tm[i]))
        d2 = d1 - v * sqrt(Tm[i])
        P[i] = 0.5 * S[i] * (1 + erf(d1 * 0.70710678)) - 0.5 * Kx[i] * exp(-r * Tm[i]) * (1 + erf(d2 * 0.70710678))
    return P


@op
def lorenz_rk(X: inout(f64[N, 3]), h: f64):
    for i in range(N):
        for t in range(50):
            x = X[i, 0]
            y = X[i, 1]
            z = X[i, 2]
            X[i, 0] = x + h * 10.0 * (y - x)
            X[i, 1] = y + h * (x * (28.0 - z) - y)
            X[i, 2] = z + h * (x * y - 2.6666667 * z)


@op
def newton_cbrt(X: f64[N]) -> f64[N]:
    Y = empty((N,), f64)
    for i in range(N):
        y = X[i]
        for k in range(12):
            y = y - (y * y * y - X[i]) / (3 * y * y)
        Y[i] = y
    return Y


@op
def mandel(Cr: f32[W], Ci: f32[H]) -> i32[H, W]:
    R = zeros((H, W), i32)
    for i in range(H):
        for j in range(W):
            x = f32(0.0)
            y = f32(0.0)
            n = 0
            while n < 100 and x * x + y * y < 4.0:
                xn = x * x - y * y + Cr[j]
                y = 2 * x * y + Ci[i]
                x = xn
                n += 1
            R[i, j] = n
    return R


@op
def fir(X: f32[N], G: f32[32]) -> f32[N]:
    Y = zeros((N,), f32)
    for i in range(31, N):
        s = 0.0
        for k in range(32):
            s += G[k] * X[i - k]
        Y[i] = s
    return Y


@op
def autocorr(X: f32[N]) -> f32[64]:
    R = zeros((64,), f32)
    for k in range(64):
        for i in range(N - 64):
            R[k] += X[i] * X[i + k]
    return R


@op
def dct8(X: f32[B, 8, 8], Cm: f32[8, 8]) -> f32[B, 8, 8]:
    Y = empty((B, 8, 8), f32)
    t = empty((8, 8), f32)
    for b in range(B):
        for u in range(8):
            for j in range(8):
                s = 0.0
                for i in range(8):
                    s += Cm[u, i] * X[b, i, j]
                t[u, j] = s
        for u in range(8):
            for v in range(8):
                s = 0.0
                for j in range(8):
                    s += t[u, j] * Cm[v, j]
                Y[b, u, v] = s
    return Y


@op
def fft_stage(Xr: inout(f32[N, 2, D]), Xi: inout(f32[N, 2, D]), Wr: f32[D], Wi: f32[D]):
    for i in range(N):
        for j in range(D):
            tr = Wr[j] * Xr[i, 1, j] - Wi[j] * Xi[i, 1, j]
            ti = Wr[j] * Xi[i, 1, j] + Wi[j] * Xr[i, 1, j]
            Xr[i, 1, j] = Xr[i, 0, j] - tr
            Xi[i, 1, j] = Xi[i, 0, j] - ti
            Xr[i, 0, j] = Xr[i, 0, j] + tr
            Xi[i, 0, j] = Xi[i, 0, j] + ti


@op
def warp_affine(X: f32[H, W], a: f32, b: f32, tx: f32, ty: f32) -> f32[H, W]:
    Y = zeros((H, W), f32)
    for i in range(H):
        for j in range(W):
            x = a * j - b * i + tx
            y = b * j + a * i + ty
            xi = i32(x)
            yi = i32(y)
            if xi >= 0 and xi < W - 1 and yi >= 0 and yi < H - 1:
                fx = x - xi
                fy = y - yi
                Y[i, j] = (1 - fy) * ((1 - fx) * X[yi, xi] + fx * X[yi, xi + 1]) + fy * (
                    (1 - fx) * X[yi + 1, xi] + fx * X[yi + 1, xi + 1]
                )
    return Y


@op
def bayer(X: u8[2 * H, 2 * W]) -> u8[H, W, 3]:
    Y = empty((H, W, 3), u8)
    for i in range(H):
        for j in range(W):
            Y[i, j, 0] = X[2 * i, 2 * j]
            Y[i, j, 1] = u8((i32(X[2 * i, 2 * j + 1]) + i32(X[2 * i + 1, 2 * j])) // 2)
            Y[i, j, 2] = X[2 * i + 1, 2 * j + 1]
    return Y


@op
def pyramid(X: f32[2 * H, 2 * W]) -> f32[H, W]:
    Y = empty((H, W), f32)
    for i in range(H):
        for j in range(W):
            Y[i, j] = 0.25 * (X[2 * i, 2 * j] + X[2 * i, 2 * j + 1] + X[2 * i + 1, 2 * j] + X[2 * i + 1, 2 * j + 1])
    return Y


@op
def coo_spmv(R: i32[E], Cc: i32[E], V: f32[E], X: f32[N]) -> f32[N]:
    Y = zeros((N,), f32)
    for e in range(E):
        Y[R[e]] += V[e] * X[Cc[e]]
    return Y


@op
def embed_bag(I: i32[B, K], Tb: f32[N, D]) -> f32[B, D]:
    Y = zeros((B, D), f32)
    for b in range(B):
        for k in range(K):
            for d in range(D):
                Y[b, d] += Tb[I[b, k], d]
    return Y


@op
def bellman(S: i32[E], Dd: i32[E], Wt: f32[E], d0: f32[N]) -> f32[N]:
    d = empty((N,), f32)
    for i in range(N):
        d[i] = d0[i]
    for t in range(5):
        for e in range(E):
            d[Dd[e]] = min(d[Dd[e]], d[S[e]] + Wt[e])
    return d


@op
def adam(P: inout(f32[N]), G: f32[N], Mo: inout(f32[N]), V: inout(f32[N]), lr: f32, c1: f32, c2: f32):
    for i in range(N):
        Mo[i] = 0.9 * Mo[i] + 0.1 * G[i]
        V[i] = 0.999 * V[i] + 0.001 * G[i] * G[i]
        P[i] -= lr * (Mo[i] / c1) / (sqrt(V[i] / c2) + 1e-8)


@op
def layernorm_bwd(X: f32[N, D], G: f32[N, D], Wt: f32[D]) -> (f32[N, D], f32[D]):
    R = empty((N, D), f32)
    gw = zeros((D,), f32)
    for i in range(N):
        m = 0.0
        for j in range(D):
            m += X[i, j]
        m /= D
        v = 0.0
        for j in range(D):
            v += (X[i, j] - m) ** 2
        r = 1 / sqrt(v / D + 1e-5)
        a = 0.0
        b = 0.0
        for j in range(D):
            xh = (X[i, j] - m) * r
            g = G[i, j] * Wt[j]
            a += g
            b += g * xh
            gw[j] += G[i, j] * xh
        for j in range(D):
            xh = (X[i, j] - m) * r
            R[i, j] = r * (G[i, j] * Wt[j] - a / D - xh * b / D)
    return R, gw


@op
def xent(X: f32[N, K], L: i32[N]) -> (f32[N], f32[N, K]):
    Ls = empty((N,), f32)
    G = empty((N, K), f32)
    for i in range(N):
        m = X[i, 0]
        for k in range(1, K):
            m = max(m, X[i, k])
        z = 0.0
        for k in range(K):
            z += exp(X[i, k] - m)
        Ls[i] = log(z) + m - X[i, L[i]]
        for k in range(K):
            G[i, k] = exp(X[i, k] - m) / z
        G[i, L[i]] -= 1.0
    return Ls, G


@op
def lstm_cell(X: f32[B, D], Hh: f32[B, D], Cc: f32[B, D], Wx: f32[4, D, D], Wh: f32[4, D, D]) -> (f32[B, D], f32[B, D]):
    Ho = empty((B, D), f32)
    Co = empty((B, D), f32)
    G = zeros((4, B, D), f32)
    for g in range(4):
        for b in range(B):
            for i in range(D):
                for k in range(D):
                    G[g, b, i] += X[b, k] * Wx[g, k, i] + Hh[b, k] * Wh[g, k, i]
    for b in range(B):
        for i in range(D):
            c = Cc[b, i] / (1 + exp(-G[0, b, i])) + tanh(G[1, b, i]) / (1 + exp(-G[2, b, i]))
            Co[b, i] = c
            Ho[b, i] = tanh(c) / (1 + exp(-G[3, b, i]))
    return Ho, Co


@op
def conv_wgrad(X: f32[B, C, H, W], G: f32[B, K, H - 2, W - 2]) -> f32[K, C, 3, 3]:
    R = zeros((K, C, 3, 3), f32)
    for b in range(B):
        for k in range(K):
            for c in range(C):
                for y in range(H - 2):
                    for x in range(W - 2):
                        for p in range(3):
                            for q in range(3):
                                R[k, c, p, q] += X[b, c, y + p, x + q] * G[b, k, y, x]
    return R


@op
def alibi_attn(Q: f32[B, T, D], Kk: f32[B, T, D], V: f32[B, T, D]) -> f32[B, T, D]:
    O = zeros((B, T, D), f32)
    S = empty((B, T, T), f32)
    for b in range(B):
        for i in range(T):
            m = -1e30
            for j in range(i + 1):
                s = 0.0
                for d in range(D):
                    s += Q[b, i, d] * Kk[b, j, d]
                S[b, i, j] = s * 0.125 - 0.1 * (i - j)
                m = max(m, S[b, i, j])
            z = 0.0
            for j in range(i + 1):
                S[b, i, j] = exp(S[b, i, j] - m)
                z += S[b, i, j]
            for j in range(i + 1):
                for d in range(D):
                    O[b, i, d] += S[b, i, j] / z * V[b, j, d]
    return O


@op
def toeplitz(Tt: f64[2 * N - 1], X: f64[N]) -> f64[N]:
    Y = zeros((N,), f64)
    for i in range(N):
        for j in range(N):
            Y[i] += Tt[i - j + N - 1] * X[j]
    return Y


@op
def kron(A: f64[N, N], Bm: f64[M, M]) -> f64[N * M, N * M] if False else f64[N, M, N, M]:
    R = empty((N, M, N, M), f64)
    for i in range(N):
        for k in range(M):
            for j in range(N):
                for l in range(M):
                    R[i, k, j, l] = A[i, j] * Bm[k, l]
    return R


@op
def householder(A: inout(f64[M, N])):
    for k in range(N):
        s = 0.0
        for i in range(k, M):
            s += A[i, k] * A[i, k]
        r = sqrt(s)
        a = A[k, k] + r if A[k, k] > 0 else A[k, k] - r
        v2 = s - A[k, k] * A[k, k] + a * a
        for j in range(k + 1, N):
            d = a * A[k, j]
            for i in range(k + 1, M):
                d += A[i, k] * A[i, j]
            d = 2 * d / v2
            A[k, j] -= d * a
            for i in range(k + 1, M):
                A[i, j] -= d * A[i, k]
        A[k, k] = a


@op
def xorshift(S: u32[N]) -> u32[N]:
    Y = empty((N,), u32)
    for i in range(N):
        x = S[i]
        for k in range(8):
            x = x ^ (x << u32(13))
            x = x ^ (x >> u32(17))
            x = x ^ (x << u32(5))
        Y[i] = x
    return Y


@op
def zero_cross(X: f32[B, T]) -> i32[B]:
    R = zeros((B,), i32)
    for b in range(B):
        for t in range(1, T):
            if X[b, t - 1] * X[b, t] < 0:
                R[b] += 1
    return R


@op
def box_run(X: f32[H, W]) -> f32[H, W]:
    Y = zeros((H, W), f32)
    for i in range(H):
        s = 0.0
        for j in range(W):
            s += X[i, j]
            if j >= 9:
                s -= X[i, j - 9]
            Y[i, j] = s / 9
    return Y


@op
def maxpool_bwd(X: f32[C, 2 * H, 2 * W], G: f32[C, H, W]) -> f32[C, 2 * H, 2 * W]:
    R = zeros((C, 2 * H, 2 * W), f32)
    for c in range(C):
        for i in range(H):
            for j in range(W):
                m = max(
                    max(X[c, 2 * i, 2 * j], X[c, 2 * i, 2 * j + 1]),
                    max(X[c, 2 * i + 1, 2 * j], X[c, 2 * i + 1, 2 * j + 1]),
                )
                for a in range(2):
                    for b in range(2):
                        if X[c, 2 * i + a, 2 * j + b] == m:
                            R[c, 2 * i + a, 2 * j + b] = G[c, i, j]
    return R


@op
def batchnorm_train(X: f32[B, C, H, W], g: f32[C], b0: f32[C]) -> f32[B, C, H, W]:
    Y = empty((B, C, H, W), f32)
    for c in range(C):
        s = 0.0
        q = 0.0
        for b in range(B):
            for i in range(H):
                for j in range(W):
                    s += X[b, c, i, j]
                    q += X[b, c, i, j] * X[b, c, i, j]
        n = B * H * W
        m = s / n
        r = 1 / sqrt(q / n - m * m + 1e-5)
        for b in range(B):
            for i in range(H):
                for j in range(W):
                    Y[b, c, i, j] = (X[b, c, i, j] - m) * r * g[c] + b0[c]
    return Y


SIZES = {
    # to be timed with, and to be compared with plain Python
    "horner": (dict(N=100000), dict(N=9)),
    "black_scholes": (dict(N=100000), dict(N=9)),
    "lorenz_rk": (dict(N=5000), dict(N=5)),
    "newton_cbrt": (dict(N=20000), dict(N=9)),
    "mandel": (dict(H=200, W=200), dict(H=5, W=7)),
    "fir": (dict(N=100000), dict(N=50)),
    "autocorr": (dict(N=50000), dict(N=90)),
    "dct8": (dict(B=5000), dict(B=2)),
    "fft_stage": (dict(N=500, D=256), dict(N=3, D=5)),
    "warp_affine": (dict(H=480, W=640), dict(H=9, W=11)),
    "bayer": (dict(H=480, W=640), dict(H=4, W=5)),
    "pyramid": (dict(H=480, W=640), dict(H=4, W=5)),
    "coo_spmv": (dict(N=5000, E=100000), dict(N=5, E=11)),
    "embed_bag": (dict(B=500, K=20, N=5000, D=64), dict(B=3, K=4, N=6, D=5)),
    "bellman": (dict(N=2000, E=20000), dict(N=5, E=11)),
    "adam": (dict(N=100000), dict(N=9)),
    "layernorm_bwd": (dict(N=500, D=768), dict(N=5, D=7)),
    "xent": (dict(N=500, K=1000), dict(N=5, K=7)),
    "lstm_cell": (dict(B=16, D=256), dict(B=3, D=5)),
    "conv_wgrad": (dict(B=2, C=16, K=16, H=34, W=34), dict(B=2, C=2, K=3, H=5, W=6)),
    "alibi_attn": (dict(B=4, T=128, D=64), dict(B=2, T=5, D=4)),
    "toeplitz": (dict(N=2000), dict(N=7)),
    "kron": (dict(N=32, M=32), dict(N=3, M=4)),
    "householder": (dict(M=300, N=200), dict(M=7, N=5)),
    "xorshift": (dict(N=100000), dict(N=9)),
    "zero_cross": (dict(B=64, T=8000), dict(B=3, T=11)),
    "box_run": (dict(H=720, W=1280), dict(H=4, W=20)),
    "maxpool_bwd": (dict(C=16, H=56, W=56), dict(C=2, H=3, W=4)),
    "batchnorm_train": (dict(B=8, C=64, H=28, W=28), dict(B=2, C=3, H=4, W=5)),
}


def values(name, argument, dtype, shape, sizes, rng):
    """Inputs that are not any: None for those that are."""
    if np.dtype(dtype).kind in "iu" and argument in ("R", "Cc", "S", "Dd") and name in ("coo_spmv", "bellman"):
        return rng.integers(0, sizes["N"], shape).astype(dtype)
    if name == "embed_bag" and argument == "I":
        return rng.integers(0, sizes["N"], shape).astype(dtype)
    if name == "xent" and argument == "L":
        return rng.integers(0, sizes["K"], shape).astype(dtype)
    if name == "xorshift":
        return rng.integers(1, 2**32 - 1, shape).astype(dtype)
    if name == "mandel":
        return np.linspace(-1.6, 0.6, shape[0]).astype(dtype)
    if name == "lorenz_rk" and not shape:
        return np.dtype(dtype).type(0.01)
    if name == "zero_cross":
        return (rng.random(shape) - 0.5).astype(dtype)
    if name == "warp_affine" and not shape:
        return np.dtype(dtype).type({"a": 0.9, "b": 0.2, "tx": 3.3, "ty": 1.7}[argument])
    if name == "newton_cbrt":
        return rng.random(shape) + 0.5
    return None
