"""gemver: A += u1 v1' + u2 v2', x = beta A' y + z, w = alpha A x."""

from examples.polybench.data import normal
from polyc import dims, f64, inout, op

N = dims("N")
SIZES = {"MINI": {"N": 40}, "SMALL": {"N": 120}, "MEDIUM": {"N": 400}, "LARGE": {"N": 2000}}


@op
def gemver(
    alpha: f64, beta: f64, A: inout(f64[N, N]), u1: f64[N], v1: f64[N], u2: f64[N], v2: f64[N],
    w: inout(f64[N]), x: inout(f64[N]), y: f64[N], z: f64[N],
):  # fmt: skip
    for i in range(N):
        for j in range(N):
            A[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(N):
        for j in range(N):
            x[i] = x[i] + beta * A[j, i] * y[j]
    for i in range(N):
        x[i] = x[i] + z[i]
    for i in range(N):
        for j in range(N):
            w[i] = w[i] + alpha * A[i, j] * x[j]


def inputs(size, rng):
    n = size["N"]
    vectors = {name: normal(rng, n) for name in ("u1", "v1", "u2", "v2", "w", "x", "y", "z")}
    return {"alpha": 1.5, "beta": 1.2, "A": normal(rng, n, n), **vectors}


def reference(alpha, beta, A, u1, v1, u2, v2, w, x, y, z):
    a = A + u1[:, None] * v1 + u2[:, None] * v2
    x = x + beta * a.T @ y + z
    return a, w + alpha * a @ x, x
