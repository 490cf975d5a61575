"""gramschmidt: A = Q R by the modified Gram-Schmidt process.

PolyBench's MINI and SMALL have more columns than rows, which makes the last columns of Q
noise; M and N are exchanged here.
"""

import numpy as np

from examples.polybench.data import normal
from polyc import dims, f64, inout, op, sqrt, zeros

M, N = dims("M N")
SIZES = {
    "MINI": {"M": 30, "N": 20},
    "SMALL": {"M": 80, "N": 60},
    "MEDIUM": {"M": 200, "N": 240},
    "LARGE": {"M": 1000, "N": 1200},
}


@op
def gramschmidt(A: inout(f64[M, N])) -> (f64[N, N], f64[M, N]):
    R = zeros((N, N), f64)
    Q = zeros((M, N), f64)
    for k in range(N):
        nrm = 0.0
        for i in range(M):
            nrm += A[i, k] * A[i, k]
        R[k, k] = sqrt(nrm)
        for i in range(M):
            Q[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, N):
            R[k, j] = 0.0
            for i in range(M):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(M):
                A[i, j] = A[i, j] - Q[i, k] * R[k, j]
    return R, Q


def inputs(size, rng):
    m, n = size["M"], size["N"]
    return {"A": normal(rng, m, n) + 3 * np.eye(m, n)}


def reference(A):
    q, r = np.linalg.qr(A)
    sign = np.sign(np.diag(r))
    q, r = q * sign, r * sign[:, None]
    # What is left of column j is its part orthogonal to the columns before it.
    return q * np.diag(r), np.triu(r), q
