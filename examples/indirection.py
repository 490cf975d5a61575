"""Indices and loop bounds that come from arrays, and what an index outside its array does."""

import numpy as np

from polyc import BoundsError, dims, empty, f32, grid, i32, i64, op

N, M, K, D = dims("N M K D")


@op
def spmv(ptr: i32[N + 1], col: i32[K], val: f32[K], x: f32[M]) -> f32[N]:
    """A sparse matrix in CSR (rows of `val` and `col` between pointers) times a vector."""
    y = empty(N, f32)
    for i in range(N):
        y[i] = 0.0
        for j in range(ptr[i], ptr[i + 1]):
            y[i] += val[j] * x[col[j]]
    return y


@op
def embedding(table: f32[N, D], ids: i64[M]) -> f32[M, D]:
    """Rows of a table."""
    y = empty((M, D), f32)
    for i, d in grid(M, D):
        y[i, d] = table[ids[i], d]
    return y


@op
def gather_at_sums(x: f32[N], steps: i32[M]) -> f32[M]:
    """Elements at running sums of `steps`: positions that the program computes, so their checks stay in the loop."""
    at = empty(M, i32)
    y = empty(M, f32)
    at[0] = steps[0]
    for i in range(1, M):
        at[i] = at[i - 1] + steps[i]
    for i in range(M):
        y[i] = x[at[i]]
    return y


def main() -> None:
    ptr, col = np.array([0, 2, 2, 4], np.int32), np.array([0, 3, 1, 2], np.int32)
    print("sparse matrix times vector:", spmv(ptr, col, np.ones(4, np.float32), np.arange(4, dtype=np.float32)))
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    print("rows 2 and 0 of a table:", *embedding(table, np.array([2, 0])))
    print("elements 1, 3, 2:", gather_at_sums(np.arange(4, dtype=np.float32), np.array([1, 2, -1], np.int32)))
    try:
        embedding(table, np.array([2, 3]))
    except BoundsError as error:
        print(error)


if __name__ == "__main__":
    main()
