"""correlation: the correlation matrix of M variables from N observations."""

import numpy as np

from examples.polybench.data import normal
from polyc import dims, empty, f64, inout, op, sqrt

N, M = dims("N M")
SIZES = {
    "MINI": {"M": 28, "N": 32},
    "SMALL": {"M": 80, "N": 100},
    "MEDIUM": {"M": 240, "N": 260},
    "LARGE": {"M": 1200, "N": 1400},
}


@op
def correlation(data: inout(f64[N, M]), *, eps=0.1) -> (f64[M, M], f64[M], f64[M]):
    corr = empty((M, M), f64)
    mean = empty(M, f64)
    stddev = empty(M, f64)
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] /= f64(N)
    for j in range(M):
        stddev[j] = 0.0
        for i in range(N):
            stddev[j] += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        stddev[j] /= f64(N)
        stddev[j] = sqrt(stddev[j])
        stddev[j] = 1.0 if stddev[j] <= eps else stddev[j]
    for i in range(N):
        for j in range(M):
            data[i, j] -= mean[j]
            data[i, j] /= sqrt(f64(N)) * stddev[j]
    for i in range(M - 1):
        corr[i, i] = 1.0
        for j in range(i + 1, M):
            corr[i, j] = 0.0
            for k in range(N):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
    corr[M - 1, M - 1] = 1.0
    return corr, mean, stddev


def inputs(size, rng):
    return {"data": normal(rng, size["N"], size["M"]) + 0.3}


def reference(data):
    centred = (data - data.mean(0)) / (np.sqrt(len(data)) * data.std(0))
    return centred, np.corrcoef(data.T), data.mean(0), data.std(0)
