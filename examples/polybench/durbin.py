"""durbin: solves the Toeplitz system T y = -r of the Yule-Walker equations."""

import numpy as np

from polyc import dims, empty, f64, op

N = dims("N")
SIZES = {"MINI": {"N": 40}, "SMALL": {"N": 120}, "MEDIUM": {"N": 400}, "LARGE": {"N": 2000}}


@op
def durbin(r: f64[N]) -> f64[N]:
    y = empty(N, f64)
    z = empty(N, f64)
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, N):
        beta = (1.0 - alpha * alpha) * beta
        total = 0.0
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -(r[k] + total) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
    return y


def inputs(size, rng):
    # The Toeplitz matrix 1 + R: a random R of this scale has a norm below 1, so the system is well conditioned.
    n = size["N"]
    return {"r": rng.uniform(-0.25, 0.25, n) / np.sqrt(n)}


def reference(r):
    n = len(r)
    first = np.concatenate([[1.0], r[:-1]])
    return (np.linalg.solve(first[np.abs(np.subtract.outer(np.arange(n), np.arange(n)))], -r),)
