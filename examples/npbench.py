"""Programs of NPBench (Ziogas et al., "NPBench: A Benchmarking Suite for High-Performance NumPy", ICS 2021) that are
affine and not in PolyBench, as operators: weather stencils, flows in a cavity and in a channel, a convolution with the
channels last, bodies that attract each other, averages over rings. No operator has a schedule: polyc makes it."""

import builtins
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc import asin, cos, dims, empty, f64, grid, inout, max, min, op, sin, sqrt, tanh

A, B, I, J, K, N, M, H, W, C, F, R = dims("A B I J K N M H W C F R")

RHO, NU, DT, FORCE = 1.0, 0.1, 0.001, 1.0  # density, viscosity, length of a step, force along the channel


@op
def compute(x: f64[M, N], y: f64[M, N], a: f64, b: f64, c: f64) -> f64[M, N]:
    out = empty((M, N), f64)
    for i, j in grid(M, N):
        out[i, j] = min(max(x[i, j], 2.0), 10.0) * a + y[i, j] * b + c
    return out


@op
def go_fast(x: f64[N, N]) -> f64[N, N]:
    out = empty((N, N), f64)
    trace = 0.0
    for i in range(N):
        trace += tanh(x[i, i])
    for i, j in grid(N, N):
        out[i, j] = x[i, j] + trace
    return out


@op
def arc_distance(theta1: f64[N], phi1: f64[N], theta2: f64[N], phi2: f64[N]) -> f64[N]:
    out = empty(N, f64)
    for i in range(N):
        across, along = sin((theta2[i] - theta1[i]) / 2.0), sin((phi2[i] - phi1[i]) / 2.0)
        out[i] = 2.0 * asin(sqrt(across * across + cos(theta1[i]) * cos(theta2[i]) * along * along))
    return out


@op
def azimint(data: f64[N], radius: f64[N], rings: f64[M]) -> f64[M]:
    out = empty(M, f64)
    largest = 0.0
    for i in range(N):
        largest = max(largest, radius[i])
    for r in range(M):
        total, count = 0.0, 0.0
        low, high = largest * rings[r] / M, largest * (rings[r] + 1.0) / M
        for i in range(N):
            if radius[i] >= low and radius[i] < high:
                total += data[i]
                count += 1.0
        out[r] = total / max(count, 1.0)
    return out


@op
def attraction(at: f64[N, 3], mass: f64[N], softening: f64) -> f64[N, 3]:
    out = empty((N, 3), f64)
    for i in range(N):
        x, y, z = 0.0, 0.0, 0.0
        for j in range(N):
            dx, dy, dz = at[j, 0] - at[i, 0], at[j, 1] - at[i, 1], at[j, 2] - at[i, 2]
            squared = dx * dx + dy * dy + dz * dz + softening * softening
            weight = mass[j] / (squared * sqrt(squared))
            x += dx * weight
            y += dy * weight
            z += dz * weight
        out[i, 0] = x
        out[i, 1] = y
        out[i, 2] = z
    return out


@op
def convolution(x: f64[B, H + R - 1, W + R - 1, C], w: f64[R, R, C, F], bias: f64[F]) -> f64[B, H, W, F]:
    out = empty((B, H, W, F), f64)
    for b, i, j, f in grid(B, H, W, F):
        out[b, i, j, f] = bias[f]
        for r, s, c in grid(R, R, C):
            out[b, i, j, f] += x[b, i + r, j + s, c] * w[r, s, c, f]
    return out


@op
def hdiff(x: f64[I + 4, J + 4, K], coeff: f64[I, J, K]) -> f64[I, J, K]:
    out, lap = empty((I, J, K), f64), empty((I + 2, J + 2, K), f64)
    across, along = empty((I + 1, J, K), f64), empty((I, J + 1, K), f64)
    for i, j, k in grid(I + 2, J + 2, K):
        lap[i, j, k] = 4.0 * x[i + 1, j + 1, k] - (
            x[i + 2, j + 1, k] + x[i, j + 1, k] + x[i + 1, j + 2, k] + x[i + 1, j, k]
        )
    for i, j, k in grid(I + 1, J, K):
        step = lap[i + 1, j + 1, k] - lap[i, j + 1, k]
        across[i, j, k] = 0.0 if step * (x[i + 2, j + 2, k] - x[i + 1, j + 2, k]) > 0.0 else step
    for i, j, k in grid(I, J + 1, K):
        step = lap[i + 1, j + 1, k] - lap[i + 1, j, k]
        along[i, j, k] = 0.0 if step * (x[i + 2, j + 2, k] - x[i + 2, j + 1, k]) > 0.0 else step
    for i, j, k in grid(I, J, K):
        flow = across[i + 1, j, k] - across[i, j, k] + along[i, j + 1, k] - along[i, j, k]
        out[i, j, k] = x[i + 2, j + 2, k] - coeff[i, j, k] * flow
    return out


@op
def vadv(
    stage: inout(f64[I, J, K]), u: f64[I, J, K], wcon: f64[I + 1, J, K], pos: f64[I, J, K], tens: f64[I, J, K], dtr: f64
):
    c, d = empty((I, J, K), f64), empty((I, J, K), f64)
    for i, j in grid(I, J):
        for k in range(K):
            above, below, diagonal, change = 0.0, 0.0, dtr, 0.0
            if k < K - 1:
                above = 0.125 * (wcon[i + 1, j, k + 1] + wcon[i, j, k + 1])
                change -= above * (u[i, j, k + 1] - u[i, j, k])
            if k > 0:
                below = -0.125 * (wcon[i + 1, j, k] + wcon[i, j, k])
                change -= below * (u[i, j, k - 1] - u[i, j, k])
            diagonal = diagonal - above - below
            c[i, j, k] = above
            d[i, j, k] = dtr * pos[i, j, k] + tens[i, j, k] + stage[i, j, k] + change
            if k == 0:
                c[i, j, k] = c[i, j, k] / diagonal
                d[i, j, k] = d[i, j, k] / diagonal
            else:
                divided = 1.0 / (diagonal - c[i, j, k - 1] * below)
                c[i, j, k] = c[i, j, k] * divided
                d[i, j, k] = (d[i, j, k] - d[i, j, k - 1] * below) * divided
        last = d[i, j, K - 1]
        stage[i, j, K - 1] = dtr * (last - pos[i, j, K - 1])
        for k in range(1, K):
            last = d[i, j, K - 1 - k] - c[i, j, K - 1 - k] * last
            stage[i, j, K - 1 - k] = dtr * (last - pos[i, j, K - 1 - k])


@op
def cavity(
    u: inout(f64[N, M]), v: inout(f64[N, M]), p: inout(f64[N, M]), dx: f64, dy: f64, *, steps: int = 4, sweeps: int = 5
):
    b, q, un, vn = empty((N, M), f64), empty((N, M), f64), empty((N, M), f64), empty((N, M), f64)
    for t in range(steps):
        for i, j in grid(N, M):
            un[i, j] = u[i, j]
            vn[i, j] = v[i, j]
        for i in range(1, N - 1):
            for j in range(1, M - 1):
                ux, uy = (u[i, j + 1] - u[i, j - 1]) / (2.0 * dx), (u[i + 1, j] - u[i - 1, j]) / (2.0 * dy)
                vx, vy = (v[i, j + 1] - v[i, j - 1]) / (2.0 * dx), (v[i + 1, j] - v[i - 1, j]) / (2.0 * dy)
                b[i, j] = RHO * ((ux + vy) / DT - ux * ux - 2.0 * uy * vx - vy * vy)
        for s in range(sweeps):
            for i, j in grid(N, M):
                q[i, j] = p[i, j]
            for i in range(1, N - 1):
                for j in range(1, M - 1):
                    p[i, j] = (
                        (q[i, j + 1] + q[i, j - 1]) * (dy * dy)
                        + (q[i + 1, j] + q[i - 1, j]) * (dx * dx)
                        - (dx * dx) * (dy * dy) * b[i, j]
                    ) / (2.0 * (dx * dx + dy * dy))
            for i in range(N):
                p[i, M - 1] = p[i, M - 2]
            for j in range(M):
                p[0, j] = p[1, j]
            for i in range(N):
                p[i, 0] = p[i, 1]
            for j in range(M):
                p[N - 1, j] = 0.0
        for i in range(1, N - 1):
            for j in range(1, M - 1):
                u[i, j] = (
                    un[i, j]
                    - un[i, j] * DT / dx * (un[i, j] - un[i, j - 1])
                    - vn[i, j] * DT / dy * (un[i, j] - un[i - 1, j])
                    - DT / (2.0 * RHO * dx) * (p[i, j + 1] - p[i, j - 1])
                    + NU * DT / (dx * dx) * (un[i, j + 1] - 2.0 * un[i, j] + un[i, j - 1])
                    + NU * DT / (dy * dy) * (un[i + 1, j] - 2.0 * un[i, j] + un[i - 1, j])
                )
                v[i, j] = (
                    vn[i, j]
                    - un[i, j] * DT / dx * (vn[i, j] - vn[i, j - 1])
                    - vn[i, j] * DT / dy * (vn[i, j] - vn[i - 1, j])
                    - DT / (2.0 * RHO * dy) * (p[i + 1, j] - p[i - 1, j])
                    + NU * DT / (dx * dx) * (vn[i, j + 1] - 2.0 * vn[i, j] + vn[i, j - 1])
                    + NU * DT / (dy * dy) * (vn[i + 1, j] - 2.0 * vn[i, j] + vn[i - 1, j])
                )
        for j in range(M):
            u[0, j] = 0.0
            u[N - 1, j] = 1.0
            v[0, j] = 0.0
            v[N - 1, j] = 0.0
        for i in range(N - 1):
            u[i, 0] = 0.0
            u[i, M - 1] = 0.0
            v[i, 0] = 0.0
            v[i, M - 1] = 0.0


@op
def channel(
    u: inout(f64[N, M]), v: inout(f64[N, M]), p: inout(f64[N, M]), dx: f64, dy: f64, *, steps: int = 4, sweeps: int = 5
):
    b, q, un, vn = empty((N, M), f64), empty((N, M), f64), empty((N, M), f64), empty((N, M), f64)
    for t in range(steps):
        for i, j in grid(N, M):
            un[i, j] = u[i, j]
            vn[i, j] = v[i, j]
        for i in range(1, N - 1):
            for j in range(M):
                ux = (u[i, (j + 1) % M] - u[i, (j + M - 1) % M]) / (2.0 * dx)
                vx = (v[i, (j + 1) % M] - v[i, (j + M - 1) % M]) / (2.0 * dx)
                uy, vy = (u[i + 1, j] - u[i - 1, j]) / (2.0 * dy), (v[i + 1, j] - v[i - 1, j]) / (2.0 * dy)
                b[i, j] = RHO * ((ux + vy) / DT - ux * ux - 2.0 * uy * vx - vy * vy)
        for s in range(sweeps):
            for i, j in grid(N, M):
                q[i, j] = p[i, j]
            for i in range(1, N - 1):
                for j in range(M):
                    p[i, j] = (
                        (q[i, (j + 1) % M] + q[i, (j + M - 1) % M]) * (dy * dy)
                        + (q[i + 1, j] + q[i - 1, j]) * (dx * dx)
                        - (dx * dx) * (dy * dy) * b[i, j]
                    ) / (2.0 * (dx * dx + dy * dy))
            for j in range(M):
                p[N - 1, j] = p[N - 2, j]
                p[0, j] = p[1, j]
        for i in range(1, N - 1):
            for j in range(M):
                u[i, j] = (
                    un[i, j]
                    - un[i, j] * DT / dx * (un[i, j] - un[i, (j + M - 1) % M])
                    - vn[i, j] * DT / dy * (un[i, j] - un[i - 1, j])
                    - DT / (2.0 * RHO * dx) * (p[i, (j + 1) % M] - p[i, (j + M - 1) % M])
                    + NU * DT / (dx * dx) * (un[i, (j + 1) % M] - 2.0 * un[i, j] + un[i, (j + M - 1) % M])
                    + NU * DT / (dy * dy) * (un[i + 1, j] - 2.0 * un[i, j] + un[i - 1, j])
                    + FORCE * DT
                )
                v[i, j] = (
                    vn[i, j]
                    - un[i, j] * DT / dx * (vn[i, j] - vn[i, (j + M - 1) % M])
                    - vn[i, j] * DT / dy * (vn[i, j] - vn[i - 1, j])
                    - DT / (2.0 * RHO * dy) * (p[i + 1, j] - p[i - 1, j])
                    + NU * DT / (dx * dx) * (vn[i, (j + 1) % M] - 2.0 * vn[i, j] + vn[i, (j + M - 1) % M])
                    + NU * DT / (dy * dy) * (vn[i + 1, j] - 2.0 * vn[i, j] + vn[i - 1, j])
                )
        for j in range(M):
            u[0, j] = 0.0
            u[N - 1, j] = 0.0
            v[0, j] = 0.0
            v[N - 1, j] = 0.0


OPERATORS = {f.name: f for f in (
    compute, go_fast, arc_distance, azimint, attraction, convolution, hdiff, vadv, cavity, channel,
)}  # fmt: skip


def arguments(name: str, small: bool = False) -> list[Any]:
    """Random ones: of NPBench's kind of sizes, or a few elements each."""
    rng = np.random.default_rng(3)

    def real(*shape: int) -> np.ndarray:
        return rng.random(shape)

    if name == "compute":
        n = 7 if small else 2000
        return [10 * real(n, n + 2), real(n, n + 2), 3.0, 5.0, 7.0]
    if name == "go_fast":
        return [real(6, 6) if small else real(2000, 2000)]
    if name == "arc_distance":
        return [real(9 if small else 1_000_000) for _ in range(4)]
    if name == "azimint":
        n, rings = (50, 7) if small else (400_000, 100)
        return [real(n), real(n), np.arange(rings, dtype=np.float64)]
    if name == "attraction":
        n = 6 if small else 1000
        return [real(n, 3), real(n), 0.1]
    if name == "convolution":
        b, n, r, c, f = (2, 5, 3, 3, 4) if small else (8, 64, 5, 3, 8)
        return [real(b, n + r - 1, n + r - 1, c), real(r, r, c, f), real(f)]
    if name == "hdiff":
        i, j, k = (5, 4, 6) if small else (128, 128, 160)
        return [real(i + 4, j + 4, k), real(i, j, k)]
    if name == "vadv":
        i, j, k = (3, 4, 6) if small else (112, 112, 80)
        return [real(i, j, k), real(i, j, k), real(i + 1, j, k), real(i, j, k), real(i, j, k), 3.0 / 20]
    n = 8 if small else 121
    return [0.1 * real(n, n + 2), 0.1 * real(n, n + 2), real(n, n + 2), 2.0 / (n + 1), 2.0 / (n - 1)]


def rings_of(data: np.ndarray, radius: np.ndarray, rings: np.ndarray) -> np.ndarray:
    edges = radius.max() * np.append(rings, len(rings)) / len(rings)
    inside = [(radius >= low) & (radius < high) for low, high in zip(edges[:-1], edges[1:], strict=True)]
    return np.array([data[m].sum() / max(m.sum(), 1) for m in inside])


def pull(at: np.ndarray, mass: np.ndarray, softening: float) -> np.ndarray:
    apart = at[None] - at[:, None]
    weight = mass * ((apart**2).sum(2) + softening**2) ** -1.5
    return np.asarray((apart * weight[:, :, None]).sum(1))


def convolved(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], (1, 2))
    return np.asarray(np.tensordot(windows, w, ((4, 5, 3), (0, 1, 2))) + bias)


def diffused(x: np.ndarray, coeff: np.ndarray) -> np.ndarray:
    lap = 4 * x[1:-1, 1:-1] - (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])

    def limited(step: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return np.where(step * gradient > 0, 0, step)

    across = limited(np.diff(lap[:, 1:-1], axis=0), np.diff(x[1:-1, 2:-2], axis=0))
    along = limited(np.diff(lap[1:-1], axis=1), np.diff(x[2:-2, 1:-1], axis=1))
    return np.asarray(x[2:-2, 2:-2] - coeff * (np.diff(across, axis=0) + np.diff(along, axis=1)))


def advected(
    stage: np.ndarray, u: np.ndarray, wcon: np.ndarray, pos: np.ndarray, tens: np.ndarray, dtr: float
) -> np.ndarray:
    """A system with three diagonals for each column, by Thomas' elimination."""
    layers = stage.shape[2]
    middle = 0.125 * (wcon[1:] + wcon[:-1])
    flow, steps = np.zeros((*stage.shape[:2], layers + 1)), np.zeros((*stage.shape[:2], layers + 1))
    flow[:, :, 1:layers] = middle[:, :, 1:]
    steps[:, :, 1:layers] = np.diff(u, axis=2)
    d = dtr * pos + tens + stage - flow[:, :, 1:] * steps[:, :, 1:] - flow[:, :, :-1] * steps[:, :, :-1]
    c = flow[:, :, 1:].copy()
    diagonal = dtr - flow[:, :, 1:] + flow[:, :, :-1]
    for k in range(layers):
        below = -flow[:, :, k]
        before = (c[:, :, k - 1], d[:, :, k - 1]) if k else (0.0, 0.0)
        divided = 1 / (diagonal[:, :, k] - before[0] * below)
        c[:, :, k], d[:, :, k] = c[:, :, k] * divided, (d[:, :, k] - before[1] * below) * divided
    for k in reversed(range(layers - 1)):
        d[:, :, k] -= c[:, :, k] * d[:, :, k + 1]
    return np.asarray(dtr * (d - pos))


def flown(
    u: np.ndarray, v: np.ndarray, p: np.ndarray, dx: float, dy: float, periodic: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four steps of Navier and Stokes' equations, five sweeps for the pressure in each (after Barba and Forsyth, "CFD
    Python", JOSE 2018)."""
    inner = (slice(1, -1), slice(None) if periodic else slice(1, -1))

    def at(a: np.ndarray, i: int, j: int) -> np.ndarray:
        return np.asarray(np.roll(a, (-i, -j), (0, 1))[inner])

    def moved(a: np.ndarray, un: np.ndarray, vn: np.ndarray) -> np.ndarray:
        w, e, n, s, here = at(a, 0, -1), at(a, 0, 1), at(a, 1, 0), at(a, -1, 0), a[inner]
        carried = un[inner] * DT / dx * (here - w) + vn[inner] * DT / dy * (here - s)
        spread = NU * DT * ((e - 2 * here + w) / dx**2 + (n - 2 * here + s) / dy**2)
        return np.asarray(here - carried + spread)

    u, v, p = u.copy(), v.copy(), p.copy()
    for _ in range(4):
        ux, vx = ((at(a, 0, 1) - at(a, 0, -1)) / (2 * dx) for a in (u, v))
        uy, vy = ((at(a, 1, 0) - at(a, -1, 0)) / (2 * dy) for a in (u, v))
        b = RHO * ((ux + vy) / DT - ux**2 - 2 * uy * vx - vy**2)
        for _ in range(5):
            sums = (at(p, 0, 1) + at(p, 0, -1)) * dy**2 + (at(p, 1, 0) + at(p, -1, 0)) * dx**2
            p[inner] = (sums - dx**2 * dy**2 * b) / (2 * (dx**2 + dy**2))
            if periodic:
                p[-1], p[0] = p[-2], p[1]
            else:
                p[:, -1], p[0] = p[:, -2], p[1]
                p[:, 0], p[-1] = p[:, 1], 0
        un, vn = u.copy(), v.copy()
        u[inner] = moved(un, un, vn) - DT / (2 * RHO * dx) * (at(p, 0, 1) - at(p, 0, -1)) + FORCE * DT * periodic
        v[inner] = moved(vn, un, vn) - DT / (2 * RHO * dy) * (at(p, 1, 0) - at(p, -1, 0))
        u[0], u[-1], v[0], v[-1] = 0, 0 if periodic else 1, 0, 0
        if not periodic:
            u[:-1, 0], u[:-1, -1], v[:-1, 0], v[:-1, -1] = 0, 0, 0, 0
    return u, v, p


REFERENCES: dict[str, Callable[..., Any]] = {
    "compute": lambda x, y, a, b, c: np.clip(x, 2, 10) * a + y * b + c,
    "go_fast": lambda x: x + np.tanh(np.diag(x)).sum(),
    "arc_distance": lambda t1, p1, t2, p2: 2 * np.arcsin(
        np.sqrt(np.sin((t2 - t1) / 2) ** 2 + np.cos(t1) * np.cos(t2) * np.sin((p2 - p1) / 2) ** 2)
    ),
    "azimint": rings_of,
    "attraction": pull,
    "convolution": convolved,
    "hdiff": diffused,
    "vadv": advected,
    "cavity": lambda *given: flown(*given, periodic=False),
    "channel": lambda *given: flown(*given, periodic=True),
}  # fmt: skip
"""What each computes, by NumPy."""
WRITTEN = {"vadv": (0,), "cavity": (0, 1, 2), "channel": (0, 1, 2)}
"""Arguments that hold the results."""


def results(name: str, run: Callable[..., Any], given: list[Any]) -> tuple[np.ndarray, ...]:
    """What an operator, or its program as Python, makes of copies of its arguments."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    made = run(*copies)
    return tuple(copies[k] for k in WRITTEN[name]) if name in WRITTEN else (made,)


def expected(name: str, given: list[Any]) -> tuple[np.ndarray, ...]:
    """The same by NumPy."""
    found = REFERENCES[name](*given)
    return found if isinstance(found, tuple) else (found,)


def quickest(run: Callable[[], Any]) -> float:
    """Seconds of the quickest of five runs."""
    found = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return builtins.min(found)


def main() -> None:
    for name, operator in OPERATORS.items():
        given = arguments(name)
        apart = builtins.max(
            float(np.abs(a - b).max() / np.abs(b).max())
            for a, b in zip(results(name, operator, given), expected(name, given), strict=True)
        )
        ours = quickest(lambda f=operator, n=name, g=given: results(n, f, g))
        numpy = quickest(lambda n=name, g=given: expected(n, g))
        print(f"{name:12} {1e3 * ours:8.2f} ms, NumPy {1e3 * numpy:8.2f} ms, {apart:.0e} apart")


if __name__ == "__main__":
    main()
