"""gesummv: y = alpha A x + beta B x."""

from examples.polybench.data import normal
from polyc import dims, empty, f64, op

N = dims("N")
SIZES = {"MINI": {"N": 30}, "SMALL": {"N": 90}, "MEDIUM": {"N": 250}, "LARGE": {"N": 1300}}


@op
def gesummv(alpha: f64, beta: f64, A: f64[N, N], B: f64[N, N], x: f64[N]) -> (f64[N], f64[N]):
    tmp = empty(N, f64)
    y = empty(N, f64)
    for i in range(N):
        tmp[i] = 0.0
        y[i] = 0.0
        for j in range(N):
            tmp[i] = A[i, j] * x[j] + tmp[i]
            y[i] = B[i, j] * x[j] + y[i]
        y[i] = alpha * tmp[i] + beta * y[i]
    return tmp, y


def inputs(size, rng):
    n = size["N"]
    return {"alpha": 1.5, "beta": 1.2, "A": normal(rng, n, n), "B": normal(rng, n, n), "x": normal(rng, n)}


def reference(alpha, beta, A, B, x):
    return A @ x, alpha * A @ x + beta * B @ x
