"""2mm: D = alpha A B C + beta D."""

from examples.polybench.data import normal
from polyc import dims, empty, f64, inout, op

NI, NJ, NK, NL = dims("NI NJ NK NL")
SIZES = {
    "MINI": {"NI": 16, "NJ": 18, "NK": 22, "NL": 24},
    "SMALL": {"NI": 40, "NJ": 50, "NK": 70, "NL": 80},
    "MEDIUM": {"NI": 180, "NJ": 190, "NK": 210, "NL": 220},
    "LARGE": {"NI": 800, "NJ": 900, "NK": 1100, "NL": 1200},
}


@op
def two_mm(alpha: f64, beta: f64, A: f64[NI, NK], B: f64[NK, NJ], C: f64[NJ, NL], D: inout(f64[NI, NL])):
    tmp = empty((NI, NJ), f64)
    for i in range(NI):
        for j in range(NJ):
            tmp[i, j] = 0.0
            for k in range(NK):
                tmp[i, j] += alpha * A[i, k] * B[k, j]
    for i in range(NI):
        for j in range(NL):
            D[i, j] *= beta
            for k in range(NJ):
                D[i, j] += tmp[i, k] * C[k, j]


def inputs(size, rng):
    ni, nj, nk, nl = (size[d] for d in ("NI", "NJ", "NK", "NL"))
    matrices = {"A": normal(rng, ni, nk), "B": normal(rng, nk, nj), "C": normal(rng, nj, nl), "D": normal(rng, ni, nl)}
    return {"alpha": 1.5, "beta": 1.2, **matrices}


def reference(alpha, beta, A, B, C, D):
    return (alpha * A @ B @ C + beta * D,)
