"""covariance: the covariance matrix of M variables from N observations."""

import numpy as np

from examples.polybench.data import normal
from polyc import dims, empty, f64, inout, op

N, M = dims("N M")
SIZES = {
    "MINI": {"M": 28, "N": 32},
    "SMALL": {"M": 80, "N": 100},
    "MEDIUM": {"M": 240, "N": 260},
    "LARGE": {"M": 1200, "N": 1400},
}


@op
def covariance(data: inout(f64[N, M])) -> (f64[M, M], f64[M]):
    cov = empty((M, M), f64)
    mean = empty(M, f64)
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] /= f64(N)
    for i in range(N):
        for j in range(M):
            data[i, j] -= mean[j]
    for i in range(M):
        for j in range(i, M):
            cov[i, j] = 0.0
            for k in range(N):
                cov[i, j] += data[k, i] * data[k, j]
            cov[i, j] /= f64(N) - 1.0
            cov[j, i] = cov[i, j]
    return cov, mean


def inputs(size, rng):
    return {"data": normal(rng, size["N"], size["M"]) + 0.3}


def reference(data):
    return data - data.mean(0), np.cov(data.T), data.mean(0)
