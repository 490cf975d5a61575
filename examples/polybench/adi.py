"""adi: alternating direction implicit solver of the two-dimensional heat equation."""

import numpy as np

from polyc import dims, empty, f64, inout, op

N = dims("N")
SIZES = {
    "MINI": {"TSTEPS": 20, "N": 20},
    "SMALL": {"TSTEPS": 40, "N": 60},
    "MEDIUM": {"TSTEPS": 100, "N": 200},
    "LARGE": {"TSTEPS": 500, "N": 1000},
}


@op
def adi(u: inout(f64[N, N]), *, tsteps):
    v = empty((N, N), f64)
    p = empty((N, N), f64)
    q = empty((N, N), f64)
    dx = 1.0 / f64(N)
    dt = 1.0 / tsteps
    mul1 = 2.0 * dt / (dx * dx)
    mul2 = dt / (dx * dx)
    a = -mul1 / 2.0
    b = 1.0 + mul1
    d = -mul2 / 2.0
    e = 1.0 + mul2
    for t in range(1, tsteps + 1):
        for i in range(1, N - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, N - 1):
                p[i, j] = -a / (a * p[i, j - 1] + b)
                q[i, j] = (-d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - d * u[j, i + 1] - a * q[i, j - 1]) / (
                    a * p[i, j - 1] + b
                )
            v[N - 1, i] = 1.0
            for j in range(N - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, N - 1):
            u[i, 0] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = u[i, 0]
            for j in range(1, N - 1):
                p[i, j] = -d / (d * p[i, j - 1] + e)
                q[i, j] = (-a * v[i - 1, j] + (1.0 + 2.0 * a) * v[i, j] - a * v[i + 1, j] - d * q[i, j - 1]) / (
                    d * p[i, j - 1] + e
                )
            u[i, N - 1] = 1.0
            for j in range(N - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]


def inputs(size, rng):
    return {"u": rng.uniform(0.5, 1.5, (size["N"], size["N"])), "tsteps": size["TSTEPS"]}


def reference(u, tsteps):
    """Each half step solves a tridiagonal system along one axis, explicit along the other."""
    n = len(u)
    dt, dx = 1.0 / tsteps, 1.0 / n
    mul1, mul2 = 2.0 * dt / dx**2, dt / dx**2

    def implicit(c, right):
        """Rows x with c x[j-1] + (1 - 2c) x[j] + c x[j+1] = right[:, j], x = 1 at both ends."""
        m = n - 2
        system = np.diag(np.full(m, 1 - 2 * c)) + np.diag(np.full(m - 1, c), 1) + np.diag(np.full(m - 1, c), -1)
        right = right.copy()
        right[:, 0] -= c
        right[:, -1] -= c
        return np.linalg.solve(system, right.T).T

    def explicit(c, x):
        return -c * x[:-2, 1:-1] + (1 + 2 * c) * x[1:-1, 1:-1] - c * x[2:, 1:-1]

    a, d = -mul1 / 2, -mul2 / 2
    u = u.copy()
    v = np.ones((n, n))
    for _ in range(tsteps):
        v[1:-1, 1:-1] = implicit(a, explicit(d, u.T)).T
        u[1:-1, [0, -1]] = 1.0
        u[1:-1, 1:-1] = implicit(d, explicit(a, v))
    return (u,)
