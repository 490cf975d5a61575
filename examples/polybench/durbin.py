"""durbin: solves the Toeplitz system T y = -r of the Yule-Walker equations."""

import numpy as np

from polyc import dims, empty, f64, op

N = dims("N")
SIZES = {"MINI": {"N": 40}, "SMALL": {"N": 120}}


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
    # Autocorrelation of a decaying process: a well conditioned Toeplitz matrix.
    n = size["N"]
    return {"r": 0.5 ** np.arange(1, n + 1) * rng.uniform(0.8, 1.0, n)}


def reference(r):
    n = len(r)
    first = np.concatenate([[1.0], r[:-1]])
    return (np.linalg.solve(first[np.abs(np.subtract.outer(np.arange(n), np.arange(n)))], -r),)
