"""A step of the heat equation in three dimensions; its border stays as it is."""

from polyc import dims, empty, f32, grid, op

N, M, K = dims("N M K")


@op
def heat(U: f32[N, M, K]) -> f32[N, M, K]:
    """`U + 0.1 * (sum of the six neighbours - 6 U)` inside."""
    V = empty((N, M, K), f32)
    for i, j, k in grid(N, M, K):
        V[i, j, k] = U[i, j, k]
    for i in range(1, N - 1):
        for j in range(1, M - 1):
            for k in range(1, K - 1):
                V[i, j, k] = U[i, j, k] + 0.1 * (
                    U[i - 1, j, k]
                    + U[i + 1, j, k]
                    + U[i, j - 1, k]
                    + U[i, j + 1, k]
                    + U[i, j, k - 1]
                    + U[i, j, k + 1]
                    - 6.0 * U[i, j, k]
                )
    return V
