"""atax: y = A' (A x)."""

from examples.polybench.data import normal
from polyc import dims, empty, f64, op

M, N = dims("M N")
SIZES = {
    "MINI": {"M": 38, "N": 42},
    "SMALL": {"M": 116, "N": 124},
    "MEDIUM": {"M": 390, "N": 410},
    "LARGE": {"M": 1900, "N": 2100},
}


@op
def atax(A: f64[M, N], x: f64[N]) -> f64[N]:
    y = empty(N, f64)
    tmp = empty(M, f64)
    for i in range(N):
        y[i] = 0.0
    for i in range(M):
        tmp[i] = 0.0
        for j in range(N):
            tmp[i] = tmp[i] + A[i, j] * x[j]
        for j in range(N):
            y[j] = y[j] + A[i, j] * tmp[i]
    return y


def inputs(size, rng):
    return {"A": normal(rng, size["M"], size["N"]), "x": normal(rng, size["N"])}


def reference(A, x):
    return (A.T @ (A @ x),)
