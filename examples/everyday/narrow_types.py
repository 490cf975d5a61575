"""Narrow types, bits, sorts, layouts."""

import numpy as np

from polyc import (
    bf16,
    dims,
    empty,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    inout,
    op,
    u8,
    u16,
    u32,
    zeros,
)

N, M, K, T, C, H, W, B, D, E = dims("N M K T C H W B D E")


@op
def i8_gemm(A: i8[N, K], Bm: i8[K, M]) -> i32[N, M]:
    R = zeros((N, M), i32)
    for i in range(N):
        for j in range(M):
            for k in range(K):
                R[i, j] += i32(A[i, k]) * i32(Bm[k, j])
    return R


@op
def i8_gemm_nt(A: i8[N, K], Bm: i8[M, K]) -> i32[N, M]:
    R = empty((N, M), i32)
    for i in range(N):
        for j in range(M):
            s = i32(0)
            for k in range(K):
                s += i32(A[i, k]) * i32(Bm[j, k])
            R[i, j] = s
    return R


@op
def u8s8_scaled(A: u8[N, K], Bm: i8[K, M], sa: f32, sb: f32[M]) -> f32[N, M]:
    R = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            s = i32(0)
            for k in range(K):
                s += i32(A[i, k]) * i32(Bm[k, j])
            R[i, j] = f32(s) * sa * sb[j]
    return R


@op
def hamming(A: u32[N, K], Bm: u32[M, K]) -> i32[N, M]:
    R = zeros((N, M), i32)
    for i in range(N):
        for j in range(M):
            for k in range(K):
                x = A[i, k] ^ Bm[j, k]
                x = x - ((x >> u32(1)) & u32(0x55555555))
                x = (x & u32(0x33333333)) + ((x >> u32(2)) & u32(0x33333333))
                x = (x + (x >> u32(4))) & u32(0x0F0F0F0F)
                R[i, j] += i32((x * u32(0x01010101)) >> u32(24))
    return R


@op
def sad_search(X: u8[H, W], Y: u8[H, W]) -> i32[9, 9]:
    R = zeros((9, 9), i32)
    for a in range(9):
        for b in range(9):
            for i in range(4, H - 4):
                for j in range(4, W - 4):
                    R[a, b] += abs(i32(X[i, j]) - i32(Y[i + a - 4, j + b - 4]))
    return R


@op
def gray(X: u8[H, W, 3]) -> u8[H, W]:
    Y = empty((H, W), u8)
    for i in range(H):
        for j in range(W):
            Y[i, j] = u8((77 * i32(X[i, j, 0]) + 150 * i32(X[i, j, 1]) + 29 * i32(X[i, j, 2])) >> 8)
    return Y


@op
def blend(X: u8[H, W, 4], Y: u8[H, W, 4]) -> u8[H, W, 4]:
    Z = empty((H, W, 4), u8)
    for i in range(H):
        for j in range(W):
            for c in range(4):
                a = i32(X[i, j, 3])
                Z[i, j, c] = u8((i32(X[i, j, c]) * a + i32(Y[i, j, c]) * (255 - a)) // 255)
    return Z


@op
def threshold_hist(X: u16[N]) -> i64[16]:
    R = zeros((16,), i64)
    for i in range(N):
        R[i32(X[i] >> u16(12))] += 1
    return R


@op
def dequant4(Q: u8[N, K], S: f32[N, K // 16]) -> f32[N, 2 * K]:
    Y = empty((N, 2 * K), f32)
    for i in range(N):
        for k in range(K):
            Y[i, 2 * k] = (f32(Q[i, k] & u8(15)) - 8.0) * S[i, k // 16]
            Y[i, 2 * k + 1] = (f32(Q[i, k] >> u8(4)) - 8.0) * S[i, k // 16]
    return Y


@op
def absmax_quant(X: f32[N, K]) -> (i8[N, K], f32[N]):
    Q = empty((N, K), i8)
    S = empty((N,), f32)
    for i in range(N):
        m = 0.0
        for k in range(K):
            m = max(m, abs(X[i, k]))
        s = m / 127.0 + 1e-12
        S[i] = s
        for k in range(K):
            Q[i, k] = i8(X[i, k] / s)
    return Q, S


@op
def bf16_gemm(A: bf16[N, K], Bm: bf16[K, M]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for i in range(N):
        for j in range(M):
            for k in range(K):
                R[i, j] += f32(A[i, k]) * f32(Bm[k, j])
    return R


@op
def f16_axpy(X: f16[N], Y: inout(f16[N]), a: f32):
    for i in range(N):
        Y[i] = f16(f32(Y[i]) + a * f32(X[i]))


@op
def adler(X: u8[B, N]) -> u32[B]:
    R = empty((B,), u32)
    for b in range(B):
        s1 = u32(1)
        s2 = u32(0)
        for i in range(N):
            s1 = (s1 + u32(X[b, i])) % u32(65521)
            s2 = (s2 + s1) % u32(65521)
        R[b] = (s2 << u32(16)) | s1
    return R


@op
def fnv(X: u8[B, N]) -> u32[B]:
    R = empty((B,), u32)
    for b in range(B):
        h = u32(2166136261)
        for i in range(N):
            h = (h ^ u32(X[b, i])) * u32(16777619)
        R[b] = h
    return R


@op
def runlength(X: u8[B, N]) -> i32[B, N]:
    R = empty((B, N), i32)
    for b in range(B):
        R[b, 0] = 1
        for i in range(1, N):
            R[b, i] = R[b, i - 1] + 1 if X[b, i] == X[b, i - 1] else 1
    return R


@op
def insertion_sort(X: inout(f32[B, 16])):
    for b in range(B):
        for i in range(1, 16):
            for j in range(i, 0, -1):
                lo = min(X[b, j - 1], X[b, j])
                hi = max(X[b, j - 1], X[b, j])
                X[b, j - 1] = lo
                X[b, j] = hi


@op
def bubble(X: inout(i32[B, 12])):
    for b in range(B):
        for i in range(11):
            for j in range(11 - i):
                if X[b, j] > X[b, j + 1]:
                    t = X[b, j]
                    X[b, j] = X[b, j + 1]
                    X[b, j + 1] = t


@op
def bitonic(X: inout(f32[B, 64])):
    for b in range(B):
        for s in range(6):
            for i in range(32):
                if X[b, i] > X[b, i + 32]:
                    t = X[b, i]
                    X[b, i] = X[b, i + 32]
                    X[b, i + 32] = t


@op
def conv_u8(X: u8[C, H, W], F: i8[K, C, 3, 3]) -> i32[K, H - 2, W - 2]:
    Y = zeros((K, H - 2, W - 2), i32)
    for k in range(K):
        for y in range(H - 2):
            for x in range(W - 2):
                for c in range(C):
                    for a in range(3):
                        for b in range(3):
                            Y[k, y, x] += i32(X[c, y + a, x + b]) * i32(F[k, c, a, b])
    return Y


@op
def pnpoly(P: f32[N, 2], V: f32[M, 2]) -> i32[N]:
    R = empty((N,), i32)
    for n in range(N):
        c = 0
        for i in range(1, M):
            if (V[i, 1] > P[n, 1]) != (V[i - 1, 1] > P[n, 1]):
                if P[n, 0] < (V[i - 1, 0] - V[i, 0]) * (P[n, 1] - V[i, 1]) / (V[i - 1, 1] - V[i, 1]) + V[i, 0]:
                    c += 1
        R[n] = c % 2
    return R


@op
def collatz(S: i64[N]) -> i32[N]:
    R = zeros((N,), i32)
    for i in range(N):
        n = S[i]
        c = 0
        while n > 1 and c < 200:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            c += 1
        R[i] = c
    return R


@op
def legendre(X: f64[N]) -> f64[N, 12]:
    Y = empty((N, 12), f64)
    for i in range(N):
        Y[i, 0] = 1.0
        Y[i, 1] = X[i]
        for k in range(2, 12):
            Y[i, k] = ((2 * k - 1) * X[i] * Y[i, k - 1] - (k - 1) * Y[i, k - 2]) / k
    return Y


@op
def quat_mul(A: f32[N, 4], Bq: f32[N, 4]) -> f32[N, 4]:
    R = empty((N, 4), f32)
    for i in range(N):
        R[i, 0] = A[i, 0] * Bq[i, 0] - A[i, 1] * Bq[i, 1] - A[i, 2] * Bq[i, 2] - A[i, 3] * Bq[i, 3]
        R[i, 1] = A[i, 0] * Bq[i, 1] + A[i, 1] * Bq[i, 0] + A[i, 2] * Bq[i, 3] - A[i, 3] * Bq[i, 2]
        R[i, 2] = A[i, 0] * Bq[i, 2] - A[i, 1] * Bq[i, 3] + A[i, 2] * Bq[i, 0] + A[i, 3] * Bq[i, 1]
        R[i, 3] = A[i, 0] * Bq[i, 3] + A[i, 1] * Bq[i, 2] - A[i, 2] * Bq[i, 1] + A[i, 3] * Bq[i, 0]
    return R


@op
def skinning(V: f32[N, 3], I: i32[N, 4], Wt: f32[N, 4], Mx: f32[K, 3, 4]) -> f32[N, 3]:
    R = zeros((N, 3), f32)
    for n in range(N):
        for b in range(4):
            for r in range(3):
                R[n, r] += Wt[n, b] * (
                    Mx[I[n, b], r, 0] * V[n, 0]
                    + Mx[I[n, b], r, 1] * V[n, 1]
                    + Mx[I[n, b], r, 2] * V[n, 2]
                    + Mx[I[n, b], r, 3]
                )
    return R


@op
def upsample_nn(X: f32[C, H, W]) -> f32[C, 2 * H, 2 * W]:
    Y = empty((C, 2 * H, 2 * W), f32)
    for c in range(C):
        for i in range(2 * H):
            for j in range(2 * W):
                Y[c, i, j] = X[c, i // 2, j // 2]
    return Y


@op
def pixel_shuffle(X: f32[4 * C, H, W]) -> f32[C, 2 * H, 2 * W]:
    Y = empty((C, 2 * H, 2 * W), f32)
    for c in range(C):
        for a in range(2):
            for b in range(2):
                for i in range(H):
                    for j in range(W):
                        Y[c, 2 * i + a, 2 * j + b] = X[4 * c + 2 * a + b, i, j]
    return Y


@op
def nhwc_conv1x1(X: f32[N, C], Wt: f32[C, K], b: f32[K]) -> f32[N, K]:
    Y = empty((N, K), f32)
    for n in range(N):
        for k in range(K):
            Y[n, k] = b[k]
            for c in range(C):
                Y[n, k] += X[n, c] * Wt[c, k]
            Y[n, k] = max(Y[n, k], 0.0)
    return Y


@op
def depthwise_nhwc(X: f32[H, W, C], F: f32[3, 3, C]) -> f32[H - 2, W - 2, C]:
    Y = zeros((H - 2, W - 2, C), f32)
    for i in range(H - 2):
        for j in range(W - 2):
            for c in range(C):
                for a in range(3):
                    for b in range(3):
                        Y[i, j, c] += X[i + a, j + b, c] * F[a, b, c]
    return Y


SIZES = {
    # to be timed with, and to be compared with plain Python
    "i8_gemm": (dict(N=256, K=256, M=256), dict(N=5, K=6, M=7)),
    "i8_gemm_nt": (dict(N=256, K=256, M=256), dict(N=5, K=6, M=7)),
    "u8s8_scaled": (dict(N=256, K=256, M=256), dict(N=5, K=6, M=7)),
    "hamming": (dict(N=500, M=500, K=8), dict(N=5, K=3, M=7)),
    "sad_search": (dict(H=200, W=300), dict(H=11, W=12)),
    "gray": (dict(H=720, W=1280), dict(H=5, W=7)),
    "blend": (dict(H=480, W=640), dict(H=5, W=7)),
    "threshold_hist": (dict(N=500000), dict(N=50)),
    "dequant4": (dict(N=512, K=1024), dict(N=3, K=32)),
    "absmax_quant": (dict(N=500, K=1024), dict(N=3, K=9)),
    "bf16_gemm": (dict(N=256, K=256, M=256), dict(N=5, K=6, M=7)),
    "f16_axpy": (dict(N=100000), dict(N=9)),
    "adler": (dict(B=64, N=10000), dict(B=3, N=20)),
    "fnv": (dict(B=64, N=10000), dict(B=3, N=20)),
    "runlength": (dict(B=64, N=10000), dict(B=3, N=20)),
    "insertion_sort": (dict(B=5000), dict(B=3)),
    "bubble": (dict(B=5000), dict(B=3)),
    "bitonic": (dict(B=5000), dict(B=3)),
    "conv_u8": (dict(C=16, K=16, H=34, W=66), dict(C=2, K=3, H=5, W=6)),
    "pnpoly": (dict(N=20000, M=50), dict(N=9, M=6)),
    "collatz": (dict(N=20000), dict(N=9)),
    "legendre": (dict(N=20000), dict(N=9)),
    "quat_mul": (dict(N=50000), dict(N=9)),
    "skinning": (dict(N=20000, K=64), dict(N=9, K=4)),
    "upsample_nn": (dict(C=16, H=64, W=64), dict(C=2, H=3, W=4)),
    "pixel_shuffle": (dict(C=16, H=64, W=64), dict(C=2, H=3, W=4)),
    "nhwc_conv1x1": (dict(N=3136, C=64, K=128), dict(N=5, C=4, K=3)),
    "depthwise_nhwc": (dict(H=58, W=58, C=128), dict(H=5, W=6, C=3)),
}


def values(name, argument, dtype, shape, sizes, rng):
    """Inputs that are not any: None for those that are."""
    if np.dtype(dtype).kind == "i" and argument == "I":
        return rng.integers(0, sizes["K"], shape).astype(dtype)
    if name == "threshold_hist":
        return rng.integers(0, 65536, shape).astype(dtype)
    if name == "hamming":
        return rng.integers(0, 2**32 - 1, shape).astype(dtype)
    if name == "collatz":
        return rng.integers(1, 5000, shape).astype(dtype)
    if np.dtype(dtype) == np.int8:
        return rng.integers(-100, 100, shape).astype(dtype)
    if np.dtype(dtype) == np.uint8:
        return rng.integers(0, 4 if name == "runlength" else 256, shape).astype(dtype)
    if name == "bubble":
        return rng.integers(0, 1000, shape).astype(dtype)
    if name == "absmax_quant":
        return (rng.random(shape) - 0.5).astype(dtype)
    return None
