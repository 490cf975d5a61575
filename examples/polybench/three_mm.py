"""3mm: G = (A B) (C D)."""

from examples.polybench.data import normal
from polyc import dims, empty, f64, op

NI, NJ, NK, NL, NM = dims("NI NJ NK NL NM")
SIZES = {
    "MINI": {"NI": 16, "NJ": 18, "NK": 20, "NL": 22, "NM": 24},
    "SMALL": {"NI": 40, "NJ": 50, "NK": 60, "NL": 70, "NM": 80},
    "MEDIUM": {"NI": 180, "NJ": 190, "NK": 200, "NL": 210, "NM": 220},
    "LARGE": {"NI": 800, "NJ": 900, "NK": 1000, "NL": 1100, "NM": 1200},
}


@op
def three_mm(A: f64[NI, NK], B: f64[NK, NJ], C: f64[NJ, NM], D: f64[NM, NL]) -> f64[NI, NL]:
    E = empty((NI, NJ), f64)
    F = empty((NJ, NL), f64)
    G = empty((NI, NL), f64)
    for i in range(NI):
        for j in range(NJ):
            E[i, j] = 0.0
            for k in range(NK):
                E[i, j] += A[i, k] * B[k, j]
    for i in range(NJ):
        for j in range(NL):
            F[i, j] = 0.0
            for k in range(NM):
                F[i, j] += C[i, k] * D[k, j]
    for i in range(NI):
        for j in range(NL):
            G[i, j] = 0.0
            for k in range(NJ):
                G[i, j] += E[i, k] * F[k, j]
    return G


def inputs(size, rng):
    ni, nj, nk, nl, nm = (size[d] for d in ("NI", "NJ", "NK", "NL", "NM"))
    return {"A": normal(rng, ni, nk), "B": normal(rng, nk, nj), "C": normal(rng, nj, nm), "D": normal(rng, nm, nl)}


def reference(A, B, C, D):
    return ((A @ B) @ (C @ D),)
