"""Factorizations and solves in many spellings and loop orders."""

from __future__ import annotations

from polyc import dims, f64, grid, inout, op, sqrt

N, M = dims("N M")


@op
def right_looking(A: inout(f64[N, N])):
    for k in range(N):
        for i in range(k + 1, N):
            A[i, k] /= A[k, k]
        for i, j in grid((k + 1, N), (k + 1, N)):
            A[i, j] -= A[i, k] * A[k, j]


@op
def by_columns(A: inout(f64[N, N])):
    for j in range(N):
        for k in range(j):
            for i in range(k + 1, N):
                A[i, j] -= A[i, k] * A[k, j]
        for i in range(j + 1, N):
            A[i, j] = A[i, j] / A[j, j]


@op
def by_rows(A: inout(f64[N, N])):
    for i in range(1, N):
        for k in range(i):
            A[i, k] /= A[k, k]
            for j in range(k + 1, N):
                A[i, j] -= A[i, k] * A[k, j]


@op
def cholesky_by_steps(A: inout(f64[N, N])):
    for k in range(N):
        A[k, k] = sqrt(A[k, k])
        for i in range(k + 1, N):
            A[i, k] /= A[k, k]
        for i in range(k + 1, N):
            for j in range(k + 1, i + 1):
                A[i, j] -= A[i, k] * A[j, k]


@op
def solve_lower(L: f64[N, N], B: inout(f64[N, M])):
    for i in range(N):
        for k in range(i):
            for j in range(M):
                B[i, j] -= L[i, k] * B[k, j]
        for j in range(M):
            B[i, j] /= L[i, i]


@op
def solve_upper_right(U: f64[N, N], B: inout(f64[M, N])):
    for i in range(M):
        for j in range(N):
            for k in range(j):
                B[i, j] -= B[i, k] * U[k, j]
            B[i, j] /= U[j, j]


SOLVES = (solve_lower, solve_upper_right)
ALL = (right_looking, by_columns, by_rows, cholesky_by_steps, *SOLVES)
