"""Of images, of learning, of signals: what people write first."""

import numpy as np

from polyc import (
    dims,
    empty,
    exp,
    f32,
    f64,
    grid,
    i32,
    inout,
    op,
    sqrt,
    u8,
    zeros,
)

N, M, K, T, C, H, W, B, D = dims("N M K T C H W B D")


@op
def kmeans_assign(X: f32[N, D], Ce: f32[K, D]) -> i32[N]:
    L = empty((N,), i32)
    for i in range(N):
        best = 1e30
        who = 0
        for k in range(K):
            d = 0.0
            for j in range(D):
                t = X[i, j] - Ce[k, j]
                d += t * t
            if d < best:
                best = d
                who = k
        L[i] = who
    return L


@op
def knn_dist(X: f32[N, D], Y: f32[M, D]) -> f32[N, M]:
    R = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            s = 0.0
            for k in range(D):
                s += (X[i, k] - Y[j, k]) ** 2
            R[i, j] = sqrt(s)
    return R


@op
def bilateral(X: f32[H, W], ss: f32, sr: f32) -> f32[H, W]:
    Y = zeros((H, W), f32)
    for i in range(2, H - 2):
        for j in range(2, W - 2):
            num = 0.0
            den = 0.0
            for a in range(-2, 3):
                for b in range(-2, 3):
                    d = X[i + a, j + b] - X[i, j]
                    w = exp(-(a * a + b * b) * ss - d * d * sr)
                    num += w * X[i + a, j + b]
                    den += w
            Y[i, j] = num / den
    return Y


@op
def life(X: u8[H, W]) -> u8[H, W]:
    Y = zeros((H, W), u8)
    for i in range(1, H - 1):
        for j in range(1, W - 1):
            n = i32(0)
            for a in range(-1, 2):
                for b in range(-1, 2):
                    if a != 0 or b != 0:
                        n += i32(X[i + a, j + b])
            alive = n == 3 or (n == 2 and X[i, j] == 1)
            if alive:
                Y[i, j] = 1
    return Y


@op
def viterbi(E: f32[T, K], P: f32[K, K]) -> (f32[T, K], i32[T, K]):
    S = empty((T, K), f32)
    A = zeros((T, K), i32)
    for k in range(K):
        S[0, k] = E[0, k]
    for t in range(1, T):
        for k in range(K):
            best = S[t - 1, 0] + P[0, k]
            w = 0
            for j in range(1, K):
                c = S[t - 1, j] + P[j, k]
                if c > best:
                    best = c
                    w = j
            S[t, k] = best + E[t, k]
            A[t, k] = w
    return S, A


@op
def histogram(X: u8[N]) -> i32[256]:
    Hh = zeros((256,), i32)
    for i in range(N):
        Hh[i32(X[i])] += 1
    return Hh


@op
def rmsnorm_rope(X: f32[T, H, D], G: f32[D], Co: f32[T, D // 2], Si: f32[T, D // 2]) -> f32[T, H, D]:
    Y = empty((T, H, D), f32)
    for t in range(T):
        for h in range(H):
            s = 0.0
            for d in range(D):
                s += X[t, h, d] * X[t, h, d]
            r = 1 / sqrt(s / D + 1e-6)
            for d in range(D // 2):
                a = X[t, h, d] * r * G[d]
                b = X[t, h, d + D // 2] * r * G[d + D // 2]
                Y[t, h, d] = a * Co[t, d] - b * Si[t, d]
                Y[t, h, d + D // 2] = b * Co[t, d] + a * Si[t, d]
    return Y


@op
def causal_attention(Q: f32[T, D], Kk: f32[T, D], V: f32[T, D]) -> f32[T, D]:
    O = empty((T, D), f32)
    S = empty((T, T), f32)
    for i in range(T):
        m = -1e30
        for j in range(i + 1):
            s = 0.0
            for d in range(D):
                s += Q[i, d] * Kk[j, d]
            S[i, j] = s
            m = max(m, s)
        z = 0.0
        for j in range(i + 1):
            S[i, j] = exp(S[i, j] - m)
            z += S[i, j]
        for d in range(D):
            o = 0.0
            for j in range(i + 1):
                o += S[i, j] * V[j, d]
            O[i, d] = o / z
    return O


@op
def selective_scan(X: f32[T, C], Dt: f32[T, C], A: f32[C, 16], Bm: f32[T, 16], Cm: f32[T, 16]) -> f32[T, C]:
    Y = empty((T, C), f32)
    S = zeros((C, 16), f32)
    for t in range(T):
        for c in range(C):
            y = 0.0
            for n in range(16):
                S[c, n] = exp(Dt[t, c] * A[c, n]) * S[c, n] + Dt[t, c] * Bm[t, n] * X[t, c]
                y += S[c, n] * Cm[t, n]
            Y[t, c] = y
    return Y


@op
def integral_image(X: f32[H, W]) -> f32[H, W]:
    Y = empty((H, W), f32)
    for i in range(H):
        row = 0.0
        for j in range(W):
            row += X[i, j]
            Y[i, j] = row + (Y[i - 1, j] if i > 0 else 0.0)
    return Y


@op
def sobel_mag(X: f32[H, W]) -> f32[H, W]:
    Y = zeros((H, W), f32)
    for i in range(1, H - 1):
        for j in range(1, W - 1):
            gx = (
                X[i - 1, j + 1]
                + 2 * X[i, j + 1]
                + X[i + 1, j + 1]
                - X[i - 1, j - 1]
                - 2 * X[i, j - 1]
                - X[i + 1, j - 1]
            )
            gy = (
                X[i + 1, j - 1]
                + 2 * X[i + 1, j]
                + X[i + 1, j + 1]
                - X[i - 1, j - 1]
                - 2 * X[i - 1, j]
                - X[i - 1, j + 1]
            )
            Y[i, j] = sqrt(gx * gx + gy * gy)
    return Y


@op
def cholesky_solve(L: f64[N, N], Y: f64[N, M]) -> f64[N, M]:
    X = empty((N, M), f64)
    for i in range(N):
        for m in range(M):
            X[i, m] = Y[i, m]
            for j in range(i):
                X[i, m] -= L[i, j] * X[j, m]
            X[i, m] /= L[i, i]
    return X


@op
def nbody(P: f32[N, 3], Ms: f32[N]) -> f32[N, 3]:
    F = empty((N, 3), f32)
    for i in range(N):
        ax = 0.0
        ay = 0.0
        az = 0.0
        for j in range(N):
            dx = P[j, 0] - P[i, 0]
            dy = P[j, 1] - P[i, 1]
            dz = P[j, 2] - P[i, 2]
            r2 = dx * dx + dy * dy + dz * dz + 1e-3
            inv = Ms[j] / (r2 * sqrt(r2))
            ax += dx * inv
            ay += dy * inv
            az += dz * inv
        F[i, 0] = ax
        F[i, 1] = ay
        F[i, 2] = az
    return F


@op
def lcs(A: i32[N], Bb: i32[M]) -> i32[N + 1, M + 1]:
    L = zeros((N + 1, M + 1), i32)
    for i in range(1, N + 1):
        for j in range(1, M + 1):
            if A[i - 1] == Bb[j - 1]:
                L[i, j] = L[i - 1, j - 1] + 1
            else:
                L[i, j] = max(L[i - 1, j], L[i, j - 1])
    return L


@op
def depth_to_mesh(Z: f32[H, W], fx: f32, fy: f32) -> f32[H, W, 3]:
    P = empty((H, W, 3), f32)
    for i in range(H):
        for j in range(W):
            P[i, j, 0] = (j - W / 2) * Z[i, j] / fx
            P[i, j, 1] = (i - H / 2) * Z[i, j] / fy
            P[i, j, 2] = Z[i, j]
    return P


@op
def rgb_to_yuv(X: u8[H, W, 3]) -> u8[3, H, W]:
    Y = empty((3, H, W), u8)
    for i in range(H):
        for j in range(W):
            r = f32(X[i, j, 0])
            g = f32(X[i, j, 1])
            b = f32(X[i, j, 2])
            Y[0, i, j] = u8(0.299 * r + 0.587 * g + 0.114 * b)
            Y[1, i, j] = u8(128 - 0.168736 * r - 0.331264 * g + 0.5 * b)
            Y[2, i, j] = u8(128 + 0.5 * r - 0.418688 * g - 0.081312 * b)
    return Y


@op
def median3(X: f32[H, W]) -> f32[H, W]:
    Y = empty((H, W), f32)
    for i in range(H):
        Y[i, 0] = X[i, 0]
        Y[i, W - 1] = X[i, W - 1]
        for j in range(1, W - 1):
            a = X[i, j - 1]
            b = X[i, j]
            c = X[i, j + 1]
            Y[i, j] = max(min(a, b), min(max(a, b), c))
    return Y


@op
def csr_spmm(Ptr: i32[N + 1], Ix: i32[K], V: f32[K], X: f32[M, D]) -> f32[N, D]:
    Y = zeros((N, D), f32)
    for i in range(N):
        for p in range(Ptr[i], Ptr[i + 1]):
            for d in range(D):
                Y[i, d] += V[p] * X[Ix[p], d]
    return Y


@op
def jacobi_solver(A: f64[N, N], b: f64[N], x0: f64[N]) -> f64[N]:
    x = empty((N,), f64)
    y = empty((N,), f64)
    for i in range(N):
        x[i] = x0[i]
    for t in range(10):
        for i in range(N):
            s = 0.0
            for j in range(N):
                if j != i:
                    s += A[i, j] * x[j]
            y[i] = (b[i] - s) / A[i, i]
        for i in range(N):
            x[i] = y[i]
    return x


@op
def conv1d_causal_gate(X: f32[B, T, C], Wt: f32[C, 4]) -> f32[B, T, C]:
    Y = empty((B, T, C), f32)
    for b in range(B):
        for t in range(T):
            for c in range(C):
                s = 0.0
                for k in range(4):
                    if t - 3 + k >= 0:
                        s += X[b, t - 3 + k, c] * Wt[c, k]
                Y[b, t, c] = s / (1 + exp(-s))
    return Y


@op
def wave2d(U: inout(f32[H, W]), V: inout(f32[H, W])):
    for t in range(20):
        for i in range(1, H - 1):
            for j in range(1, W - 1):
                V[i, j] = (
                    2 * U[i, j] - V[i, j] + 0.1 * (U[i - 1, j] + U[i + 1, j] + U[i, j - 1] + U[i, j + 1] - 4 * U[i, j])
                )
        for i in range(1, H - 1):
            for j in range(1, W - 1):
                U[i, j] = (
                    2 * V[i, j] - U[i, j] + 0.1 * (V[i - 1, j] + V[i + 1, j] + V[i, j - 1] + V[i, j + 1] - 4 * V[i, j])
                )


@op
def covar(X: f32[N, D]) -> f32[D, D]:
    mu = zeros((D,), f32)
    R = zeros((D, D), f32)
    for i in range(N):
        for d in range(D):
            mu[d] += X[i, d]
    for d in range(D):
        mu[d] /= N
    for i in range(N):
        for a in range(D):
            for b in range(D):
                R[a, b] += (X[i, a] - mu[a]) * (X[i, b] - mu[b])
    for a in range(D):
        for b in range(D):
            R[a, b] /= N - 1
    return R


@op
def batched_lu(A: inout(f32[B, 8, 8])):
    for b in range(B):
        for k in range(8):
            for i in range(k + 1, 8):
                A[b, i, k] /= A[b, k, k]
                for j in range(k + 1, 8):
                    A[b, i, j] -= A[b, i, k] * A[b, k, j]


@op
def top1_softmax(X: f32[N, K]) -> (i32[N], f32[N]):
    I = empty((N,), i32)
    P = empty((N,), f32)
    for i in range(N):
        m = X[i, 0]
        w = 0
        for k in range(1, K):
            if X[i, k] > m:
                m = X[i, k]
                w = k
        z = 0.0
        for k in range(K):
            z += exp(X[i, k] - m)
        I[i] = w
        P[i] = 1 / z
    return I, P


@op
def ema(X: f32[N, T], a: f32) -> f32[N, T]:
    Y = empty((N, T), f32)
    for i in range(N):
        Y[i, 0] = X[i, 0]
        for t in range(1, T):
            Y[i, t] = a * X[i, t] + (1 - a) * Y[i, t - 1]
    return Y


@op
def nms_iou(Bx: f32[N, 4]) -> f32[N, N]:
    R = empty((N, N), f32)
    for i in range(N):
        for j in range(N):
            x0 = max(Bx[i, 0], Bx[j, 0])
            y0 = max(Bx[i, 1], Bx[j, 1])
            x1 = min(Bx[i, 2], Bx[j, 2])
            y1 = min(Bx[i, 3], Bx[j, 3])
            inter = max(0.0, x1 - x0) * max(0.0, y1 - y0)
            a = (Bx[i, 2] - Bx[i, 0]) * (Bx[i, 3] - Bx[i, 1])
            b = (Bx[j, 2] - Bx[j, 0]) * (Bx[j, 3] - Bx[j, 1])
            R[i, j] = inter / (a + b - inter)
    return R


@op
def mttkrp(X: f32[N, M, K], Bf: f32[M, D], Cf: f32[K, D]) -> f32[N, D]:
    A = zeros((N, D), f32)
    for i in range(N):
        for j in range(M):
            for k in range(K):
                for d in range(D):
                    A[i, d] += X[i, j, k] * Bf[j, d] * Cf[k, d]
    return A


@op
def resize_bilinear(X: f32[C, H, W]) -> f32[C, 2 * H - 1, 2 * W - 1]:
    Y = empty((C, 2 * H - 1, 2 * W - 1), f32)
    for c in range(C):
        for i in range(H):
            for j in range(W):
                Y[c, 2 * i, 2 * j] = X[c, i, j]
                if j + 1 < W:
                    Y[c, 2 * i, 2 * j + 1] = 0.5 * (X[c, i, j] + X[c, i, j + 1])
                if i + 1 < H:
                    Y[c, 2 * i + 1, 2 * j] = 0.5 * (X[c, i, j] + X[c, i + 1, j])
                if i + 1 < H and j + 1 < W:
                    Y[c, 2 * i + 1, 2 * j + 1] = 0.25 * (
                        X[c, i, j] + X[c, i, j + 1] + X[c, i + 1, j] + X[c, i + 1, j + 1]
                    )
    return Y


@op
def linear_attention(Q: f32[T, D], Kk: f32[T, D], V: f32[T, D]) -> f32[T, D]:
    S = zeros((D, D), f32)
    O = zeros((T, D), f32)
    for t in range(T):
        for a in range(D):
            for b in range(D):
                S[a, b] = 0.99 * S[a, b] + Kk[t, a] * V[t, b]
        for b in range(D):
            for a in range(D):
                O[t, b] += Q[t, a] * S[a, b]
    return O


@op
def group_stats(X: f32[B, C, H, W]) -> (f32[B, C], f32[B, C]):
    Mn = empty((B, C), f32)
    Vr = empty((B, C), f32)
    for b, c in grid(B, C):
        s = 0.0
        q = 0.0
        for i, j in grid(H, W):
            s += X[b, c, i, j]
            q += X[b, c, i, j] ** 2
        Mn[b, c] = s / (H * W)
        Vr[b, c] = q / (H * W) - Mn[b, c] ** 2
    return Mn, Vr


@op
def dilate(X: u8[H, W]) -> u8[H, W]:
    Y = zeros((H, W), u8)
    for i in range(3, H - 3):
        for j in range(3, W - 3):
            m = u8(0)
            for a in range(-3, 4):
                for b in range(-3, 4):
                    m = max(m, X[i + a, j + b])
            Y[i, j] = m
    return Y


SIZES = {
    # to be timed with, and to be compared with plain Python
    "kmeans_assign": (dict(N=20000, K=64, D=32), dict(N=9, K=5, D=3)),
    "knn_dist": (dict(N=1000, M=1500, D=64), dict(N=5, M=6, D=3)),
    "bilateral": (dict(H=512, W=640), dict(H=9, W=11)),
    "life": (dict(H=1024, W=1024), dict(H=9, W=11)),
    "viterbi": (dict(T=500, K=128), dict(T=7, K=6)),
    "histogram": (dict(N=1000000), dict(N=500)),
    "rmsnorm_rope": (dict(T=256, H=16, D=64), dict(T=3, H=2, D=8)),
    "causal_attention": (dict(T=512, D=64), dict(T=9, D=5)),
    "selective_scan": (dict(T=256, C=512), dict(T=7, C=5)),
    "integral_image": (dict(H=1000, W=1000), dict(H=7, W=9)),
    "sobel_mag": (dict(H=1000, W=1000), dict(H=7, W=9)),
    "cholesky_solve": (dict(N=400, M=300), dict(N=7, M=5)),
    "nbody": (dict(N=3000), dict(N=9)),
    "lcs": (dict(N=2000, M=2000), dict(N=9, M=12)),
    "depth_to_mesh": (dict(H=480, W=640), dict(H=7, W=9)),
    "rgb_to_yuv": (dict(H=720, W=1280), dict(H=7, W=9)),
    "median3": (dict(H=1000, W=1000), dict(H=7, W=9)),
    "csr_spmm": (dict(N=2000, M=2000, K=40000, D=32), dict(N=6, M=5, K=13, D=4)),
    "jacobi_solver": (dict(N=1000), dict(N=9)),
    "conv1d_causal_gate": (dict(B=2, T=1000, C=256), dict(B=2, T=7, C=5)),
    "wave2d": (dict(H=500, W=500), dict(H=9, W=10)),
    "covar": (dict(N=2000, D=128), dict(N=9, D=5)),
    "batched_lu": (dict(B=5000), dict(B=3)),
    "top1_softmax": (dict(N=1000, K=1000), dict(N=7, K=9)),
    "ema": (dict(N=256, T=4000), dict(N=5, T=9)),
    "nms_iou": (dict(N=1500), dict(N=9)),
    "mttkrp": (dict(N=100, M=100, K=100, D=32), dict(N=4, M=5, K=3, D=6)),
    "resize_bilinear": (dict(C=3, H=300, W=400), dict(C=2, H=4, W=5)),
    "linear_attention": (dict(T=256, D=64), dict(T=7, D=5)),
    "group_stats": (dict(B=4, C=64, H=56, W=56), dict(B=2, C=3, H=4, W=5)),
    "dilate": (dict(H=720, W=1280), dict(H=11, W=13)),
}


def values(name, argument, dtype, shape, sizes, rng):
    """Inputs that are not any: None for those that are."""
    if name == "csr_spmm" and argument == "Ptr":
        inner = np.sort(rng.integers(0, sizes["K"], sizes["N"] - 1))
        return np.concatenate([[0], inner, [sizes["K"]]]).astype(dtype)
    if name == "csr_spmm" and argument == "Ix":
        return rng.integers(0, sizes["M"], shape).astype(dtype)
    if name == "life":
        return rng.integers(0, 2, shape).astype(dtype)
    if name in ("jacobi_solver", "batched_lu") and len(shape) >= 2:
        return (rng.random(shape) + 2 * shape[-1] * np.eye(shape[-1])).astype(dtype)
    if name == "cholesky_solve" and argument == "L":
        return np.tril(rng.random(shape)) / shape[0] + np.eye(shape[0])
    if name == "selective_scan" and argument == "A":
        return -rng.random(shape).astype(dtype)
    if name == "nms_iou":
        corners = rng.random(shape).astype(dtype)
        corners[:, 2:] += 1
        return corners
    return None
