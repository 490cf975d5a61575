"""trisolv: solves L x = b by forward substitution."""

import numpy as np

from examples.polybench.data import dominant, normal
from polyc import dims, empty, f64, op

N = dims("N")
SIZES = {"MINI": {"N": 40}, "SMALL": {"N": 120}, "MEDIUM": {"N": 400}, "LARGE": {"N": 2000}}


@op
def trisolv(L: f64[N, N], b: f64[N]) -> f64[N]:
    x = empty(N, f64)
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]
    return x


def inputs(size, rng):
    return {"L": dominant(rng, size["N"]), "b": normal(rng, size["N"])}


def reference(L, b):
    return (np.linalg.solve(np.tril(L), b),)
