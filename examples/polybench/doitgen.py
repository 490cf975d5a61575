"""doitgen: A[r, q, :] = A[r, q, :] C4, the kernel of MADNESS."""

from examples.polybench.data import normal
from polyc import dims, empty, f64, inout, op

NR, NQ, NP = dims("NR NQ NP")
SIZES = {
    "MINI": {"NQ": 8, "NR": 10, "NP": 12},
    "SMALL": {"NQ": 20, "NR": 25, "NP": 30},
    "MEDIUM": {"NQ": 40, "NR": 50, "NP": 60},
    "LARGE": {"NQ": 140, "NR": 150, "NP": 160},
}


@op
def doitgen(A: inout(f64[NR, NQ, NP]), C4: f64[NP, NP]):
    total = empty(NP, f64)
    for r in range(NR):
        for q in range(NQ):
            for p in range(NP):
                total[p] = 0.0
                for s in range(NP):
                    total[p] += A[r, q, s] * C4[s, p]
            for p in range(NP):
                A[r, q, p] = total[p]


def inputs(size, rng):
    return {"A": normal(rng, size["NR"], size["NQ"], size["NP"]), "C4": normal(rng, size["NP"], size["NP"])}


def reference(A, C4):
    return (A @ C4,)
