"""bicg: s = A' r, q = A p."""

from examples.polybench.data import normal
from polyc import dims, empty, f64, op

N, M = dims("N M")
SIZES = {
    "MINI": {"M": 38, "N": 42},
    "SMALL": {"M": 116, "N": 124},
    "MEDIUM": {"M": 390, "N": 410},
    "LARGE": {"M": 1900, "N": 2100},
}


@op
def bicg(A: f64[N, M], p: f64[M], r: f64[N]) -> (f64[M], f64[N]):
    s = empty(M, f64)
    q = empty(N, f64)
    for i in range(M):
        s[i] = 0.0
    for i in range(N):
        q[i] = 0.0
        for j in range(M):
            s[j] = s[j] + r[i] * A[i, j]
            q[i] = q[i] + A[i, j] * p[j]
    return s, q


def inputs(size, rng):
    return {"A": normal(rng, size["N"], size["M"]), "p": normal(rng, size["M"]), "r": normal(rng, size["N"])}


def reference(A, p, r):
    return A.T @ r, A @ p
