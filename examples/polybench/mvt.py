"""mvt: x1 += A y1, x2 += A' y2."""

from examples.polybench.data import normal
from polyc import dims, f64, inout, op

N = dims("N")
SIZES = {"MINI": {"N": 40}, "SMALL": {"N": 120}, "MEDIUM": {"N": 400}, "LARGE": {"N": 2000}}


@op
def mvt(x1: inout(f64[N]), x2: inout(f64[N]), y1: f64[N], y2: f64[N], A: f64[N, N]):
    for i in range(N):
        for j in range(N):
            x1[i] = x1[i] + A[i, j] * y1[j]
    for i in range(N):
        for j in range(N):
            x2[i] = x2[i] + A[j, i] * y2[j]


def inputs(size, rng):
    n = size["N"]
    return {**{name: normal(rng, n) for name in ("x1", "x2", "y1", "y2")}, "A": normal(rng, n, n)}


def reference(x1, x2, y1, y2, A):
    return x1 + A @ y1, x2 + A.T @ y2
