"""gemm: C = alpha A B + beta C."""

from examples.polybench.data import normal
from polyc import dims, f64, inout, op

NI, NJ, NK = dims("NI NJ NK")
SIZES = {
    "MINI": {"NI": 20, "NJ": 25, "NK": 30},
    "SMALL": {"NI": 60, "NJ": 70, "NK": 80},
    "MEDIUM": {"NI": 200, "NJ": 220, "NK": 240},
    "LARGE": {"NI": 1000, "NJ": 1100, "NK": 1200},
}


@op
def gemm(alpha: f64, beta: f64, C: inout(f64[NI, NJ]), A: f64[NI, NK], B: f64[NK, NJ]):
    for i in range(NI):
        for j in range(NJ):
            C[i, j] *= beta
        for k in range(NK):
            for j in range(NJ):
                C[i, j] += alpha * A[i, k] * B[k, j]


def inputs(size, rng):
    ni, nj, nk = size["NI"], size["NJ"], size["NK"]
    return {"alpha": 1.5, "beta": 1.2, "C": normal(rng, ni, nj), "A": normal(rng, ni, nk), "B": normal(rng, nk, nj)}


def reference(alpha, beta, C, A, B):
    return (alpha * A @ B + beta * C,)
