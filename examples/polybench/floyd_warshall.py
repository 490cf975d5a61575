"""floyd-warshall: all shortest paths of a graph with integer weights."""

import numpy as np

from polyc import dims, i32, inout, op

N = dims("N")
SIZES = {"MINI": {"N": 60}, "SMALL": {"N": 180}, "MEDIUM": {"N": 500}, "LARGE": {"N": 2800}}


@op
def floyd_warshall(path: inout(i32[N, N])):
    for k in range(N):
        for i in range(N):
            for j in range(N):
                path[i, j] = min(path[i, j], path[i, k] + path[k, j])


def inputs(size, rng):
    n = size["N"]
    path = np.where(rng.random((n, n)) < 0.2, rng.integers(1, 50, (n, n)), 999).astype(np.int32)
    np.fill_diagonal(path, 0)
    return {"path": path}


def reference(path):
    path = path.copy()
    for k in range(len(path)):
        path = np.minimum(path, path[:, k : k + 1] + path[k])
    return (path,)
