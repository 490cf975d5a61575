"""nussinov: RNA secondary structure prediction by dynamic programming."""

import numpy as np

from polyc import dims, i32, op, zeros

N = dims("N")
SIZES = {"MINI": {"N": 60}, "SMALL": {"N": 180}, "MEDIUM": {"N": 500}, "LARGE": {"N": 2500}}


def match(a, b):
    """1 when the bases pair (their codes add up to 3)."""
    return 1 if a + b == 3 else 0


@op
def nussinov(seq: i32[N]) -> i32[N, N]:
    table = zeros((N, N), i32)
    for i in range(N - 1, -1, -1):
        for j in range(i + 1, N):
            if j - 1 >= 0:
                table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < N:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < N:
                if i < j - 1:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + match(seq[i], seq[j]))
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


def inputs(size, rng):
    return {"seq": rng.integers(0, 4, size["N"]).astype(np.int32)}


def reference(seq):
    n = len(seq)
    table = np.zeros((n, n), np.int32)
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            best = max(table[i, j - 1], table[i + 1, j])
            best = max(best, table[i + 1, j - 1] + (1 if span > 1 and seq[i] + seq[j] == 3 else 0))
            if span > 1:
                best = max(best, (table[i, i + 1 : j] + table[i + 2 : j + 1, j]).max())
            table[i, j] = best
    return (table,)
