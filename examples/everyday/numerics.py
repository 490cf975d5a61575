"""Solvers, particles, fields, searches."""

import numpy as np

from polyc import (
    dims,
    empty,
    f32,
    f64,
    i32,
    inout,
    op,
    zeros,
)

N, M, K, T, C, H, W, B, D, E = dims("N M K T C H W B D E")


@op
def sor(A: inout(f64[N, N]), w: f64):
    for t in range(10):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = (1 - w) * A[i, j] + w * 0.25 * (A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1])


@op
def cg_step(A: f64[N, N], x: inout(f64[N]), r: inout(f64[N]), p: inout(f64[N])):
    for t in range(5):
        q = empty((N,), f64)
        rr = 0.0
        pq = 0.0
        for i in range(N):
            s = 0.0
            for j in range(N):
                s += A[i, j] * p[j]
            q[i] = s
        for i in range(N):
            rr += r[i] * r[i]
            pq += p[i] * q[i]
        a = rr / pq
        rn = 0.0
        for i in range(N):
            x[i] += a * p[i]
            r[i] -= a * q[i]
            rn += r[i] * r[i]
        b = rn / rr
        for i in range(N):
            p[i] = r[i] + b * p[i]


@op
def lattice_boltzmann(F: f32[9, H, W]) -> f32[9, H, W]:
    G = empty((9, H, W), f32)
    for i in range(H):
        for j in range(W):
            rho = 0.0
            for q in range(9):
                rho += F[q, i, j]
            ux = (F[1, i, j] + F[5, i, j] + F[8, i, j] - F[3, i, j] - F[6, i, j] - F[7, i, j]) / rho
            uy = (F[2, i, j] + F[5, i, j] + F[6, i, j] - F[4, i, j] - F[7, i, j] - F[8, i, j]) / rho
            u2 = 1.5 * (ux * ux + uy * uy)
            G[0, i, j] = F[0, i, j] + 0.6 * (rho * 0.4444444 * (1 - u2) - F[0, i, j])
            G[1, i, j] = F[1, i, j] + 0.6 * (rho * 0.1111111 * (1 + 3 * ux + 4.5 * ux * ux - u2) - F[1, i, j])
            G[2, i, j] = F[2, i, j] + 0.6 * (rho * 0.1111111 * (1 + 3 * uy + 4.5 * uy * uy - u2) - F[2, i, j])
            G[3, i, j] = F[3, i, j] + 0.6 * (rho * 0.1111111 * (1 - 3 * ux + 4.5 * ux * ux - u2) - F[3, i, j])
            G[4, i, j] = F[4, i, j] + 0.6 * (rho * 0.1111111 * (1 - 3 * uy + 4.5 * uy * uy - u2) - F[4, i, j])
            for q in range(5, 9):
                G[q, i, j] = 0.4 * F[q, i, j] + 0.6 * rho * 0.0277778

    return G


@op
def fluid_advect(U: f32[H, W], V: f32[H, W], S: f32[H, W]) -> f32[H, W]:
    R = zeros((H, W), f32)
    for i in range(1, H - 1):
        for j in range(1, W - 1):
            x = max(0.5, min(W - 1.5, j - U[i, j]))
            y = max(0.5, min(H - 1.5, i - V[i, j]))
            j0 = i32(x)
            i0 = i32(y)
            s1 = x - j0
            t1 = y - i0
            R[i, j] = (1 - t1) * ((1 - s1) * S[i0, j0] + s1 * S[i0, j0 + 1]) + t1 * (
                (1 - s1) * S[i0 + 1, j0] + s1 * S[i0 + 1, j0 + 1]
            )
    return R


@op
def jacobi3d(A: f64[N, N, N]) -> f64[N, N, N]:
    B_ = empty((N, N, N), f64)
    for i in range(N):
        for j in range(N):
            for k in range(N):
                if i == 0 or j == 0 or k == 0 or i == N - 1 or j == N - 1 or k == N - 1:
                    B_[i, j, k] = A[i, j, k]
                else:
                    B_[i, j, k] = (
                        A[i - 1, j, k]
                        + A[i + 1, j, k]
                        + A[i, j - 1, k]
                        + A[i, j + 1, k]
                        + A[i, j, k - 1]
                        + A[i, j, k + 1]
                    ) / 6.0
    return B_


@op
def lj_forces(P: f64[N, 3]) -> f64[N, 3]:
    F = zeros((N, 3), f64)
    for i in range(N):
        for j in range(N):
            if i != j:
                dx = P[i, 0] - P[j, 0]
                dy = P[i, 1] - P[j, 1]
                dz = P[i, 2] - P[j, 2]
                r2 = dx * dx + dy * dy + dz * dz
                if r2 < 0.25:
                    i6 = 1.0 / (r2 * r2 * r2)
                    f = 24.0 * i6 * (2.0 * i6 - 1.0) / r2
                    F[i, 0] += f * dx
                    F[i, 1] += f * dy
                    F[i, 2] += f * dz
    return F


@op
def batched_matvec(A: f32[B, N, N], x: f32[B, N]) -> f32[B, N]:
    y = zeros((B, N), f32)
    for b in range(B):
        for i in range(N):
            for j in range(N):
                y[b, i] += A[b, i, j] * x[b, j]
    return y


@op
def bmm_small(A: f32[B, 16, 16], X: f32[B, 16, 16]) -> f32[B, 16, 16]:
    Y = zeros((B, 16, 16), f32)
    for b in range(B):
        for i in range(16):
            for j in range(16):
                for k in range(16):
                    Y[b, i, j] += A[b, i, k] * X[b, k, j]
    return Y


@op
def kalman(P: inout(f64[B, 4, 4]), x: inout(f64[B, 4]), z: f64[B]):
    for b in range(B):
        s = P[b, 0, 0] + 0.1
        y = z[b] - x[b, 0]
        k = empty((4,), f64)
        for i in range(4):
            k[i] = P[b, i, 0] / s
        for i in range(4):
            x[b, i] += k[i] * y
        row = empty((4,), f64)
        for j in range(4):
            row[j] = P[b, 0, j]
        for i in range(4):
            for j in range(4):
                P[b, i, j] -= k[i] * row[j]


@op
def mat3_det_inv(A: f64[B, 3, 3]) -> f64[B, 3, 3]:
    R = empty((B, 3, 3), f64)
    for b in range(B):
        d = (
            A[b, 0, 0] * (A[b, 1, 1] * A[b, 2, 2] - A[b, 1, 2] * A[b, 2, 1])
            - A[b, 0, 1] * (A[b, 1, 0] * A[b, 2, 2] - A[b, 1, 2] * A[b, 2, 0])
            + A[b, 0, 2] * (A[b, 1, 0] * A[b, 2, 1] - A[b, 1, 1] * A[b, 2, 0])
        )
        for i in range(3):
            for j in range(3):
                R[b, j, i] = (
                    A[b, (i + 1) % 3, (j + 1) % 3] * A[b, (i + 2) % 3, (j + 2) % 3]
                    - A[b, (i + 1) % 3, (j + 2) % 3] * A[b, (i + 2) % 3, (j + 1) % 3]
                ) / d
    return R


@op
def spline_eval(X: f32[N], Kn: f32[M, 4]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        p = X[i] * (M - 1)
        k = i32(p)
        if k > M - 2:
            k = i32(M - 2)
        t = p - k
        Y[i] = Kn[k, 0] + t * (Kn[k, 1] + t * (Kn[k, 2] + t * Kn[k, 3]))
    return Y


@op
def ks_stat(X: f32[N], Y: f32[M]) -> f32[N]:
    R = empty((N,), f32)
    for i in range(N):
        c = 0
        for j in range(M):
            if Y[j] <= X[i]:
                c += 1
        R[i] = f32(c) / M
    return R


@op
def binary_search(S: f32[M], Q: f32[N]) -> i32[N]:
    R = empty((N,), i32)
    for i in range(N):
        lo = 0
        hi = M
        while lo < hi:
            mid = (lo + hi) // 2
            if S[mid] < Q[i]:
                lo = mid + 1
            else:
                hi = mid
        R[i] = lo
    return R


@op
def convolve_full(A: f32[N], Bv: f32[M]) -> f32[N + M - 1]:
    Y = zeros((N + M - 1,), f32)
    for i in range(N):
        for j in range(M):
            Y[i + j] += A[i] * Bv[j]
    return Y


@op
def prefix2d(X: i32[H, W]) -> i32[H, W]:
    Y = empty((H, W), i32)
    for i in range(H):
        for j in range(W):
            Y[i, j] = X[i, j]
            if i > 0:
                Y[i, j] += Y[i - 1, j]
            if j > 0:
                Y[i, j] += Y[i, j - 1]
            if i > 0 and j > 0:
                Y[i, j] -= Y[i - 1, j - 1]
    return Y


@op
def argmin_rows(X: f32[N, M]) -> i32[N]:
    R = empty((N,), i32)
    for i in range(N):
        b = 0
        for j in range(1, M):
            if X[i, j] < X[i, b]:
                b = j
        R[i] = b
    return R


@op
def group_mean(X: f32[N, D], L: i32[N]) -> f32[32, D]:
    S = zeros((32, D), f32)
    Cn = zeros((32,), f32)
    for i in range(N):
        Cn[L[i]] += 1.0
        for d in range(D):
            S[L[i], d] += X[i, d]
    for k in range(32):
        for d in range(D):
            S[k, d] /= max(Cn[k], 1.0)
    return S


@op
def dft_naive(Xr: f32[N], Xi: f32[N], Cs: f32[N], Sn: f32[N]) -> (f32[N], f32[N]):
    Yr = zeros((N,), f32)
    Yi = zeros((N,), f32)
    for k in range(N):
        for n in range(N):
            Yr[k] += Xr[n] * Cs[(k * n) % N] + Xi[n] * Sn[(k * n) % N]
            Yi[k] += Xi[n] * Cs[(k * n) % N] - Xr[n] * Sn[(k * n) % N]
    return Yr, Yi


@op
def tri_update(A: inout(f64[N, N]), x: f64[N], y: f64[N]):
    for i in range(N):
        for j in range(i + 1):
            A[i, j] += x[i] * y[j] + x[j] * y[i]


SIZES = {
    # to be timed with, and to be compared with plain Python
    "sor": (dict(N=500), dict(N=7)),
    "cg_step": (dict(N=1000), dict(N=7)),
    "lattice_boltzmann": (dict(H=256, W=256), dict(H=5, W=6)),
    "fluid_advect": (dict(H=256, W=256), dict(H=7, W=8)),
    "jacobi3d": (dict(N=100), dict(N=5)),
    "lj_forces": (dict(N=1500), dict(N=7)),
    "batched_matvec": (dict(B=500, N=32), dict(B=3, N=5)),
    "bmm_small": (dict(B=2000), dict(B=2)),
    "kalman": (dict(B=10000), dict(B=3)),
    "mat3_det_inv": (dict(B=10000), dict(B=3)),
    "spline_eval": (dict(N=100000, M=256), dict(N=9, M=6)),
    "ks_stat": (dict(N=2000, M=2000), dict(N=6, M=7)),
    "binary_search": (dict(N=20000, M=4096), dict(N=6, M=9)),
    "convolve_full": (dict(N=20000, M=101), dict(N=6, M=4)),
    "prefix2d": (dict(H=720, W=1280), dict(H=5, W=6)),
    "argmin_rows": (dict(N=1000, M=1000), dict(N=5, M=7)),
    "group_mean": (dict(N=20000, D=64), dict(N=9, D=3)),
    "dft_naive": (dict(N=512), dict(N=6)),
    "tri_update": (dict(N=1000), dict(N=7)),
}


def values(name, argument, dtype, shape, sizes, rng):
    """Inputs that are not any: None for those that are."""
    if name == "group_mean" and argument == "L":
        return rng.integers(0, 32, shape).astype(dtype)
    if name == "binary_search" and argument == "S":
        return np.sort(rng.random(shape)).astype(dtype)
    if name in ("kalman", "mat3_det_inv") and len(shape) == 3:
        return rng.random(shape) + 3 * np.eye(shape[-1])
    if name == "cg_step" and argument == "A":
        return rng.random(shape) + sizes["N"] * np.eye(sizes["N"])
    if name == "cg_step":
        return rng.random(shape)
    if name == "lattice_boltzmann":
        return (rng.random(shape) + 0.5).astype(dtype)
    return None
