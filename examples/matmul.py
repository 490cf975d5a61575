"""The first operator everybody writes: a matrix product, scheduled automatically and by hand."""

import numpy as np

from polyc import dims, empty, f32, grid, op

M, N, K = dims("M N K")


@op
def matmul(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


def main() -> None:
    rng = np.random.default_rng()
    a = rng.standard_normal((300, 200)).astype(np.float32)
    b = rng.standard_normal((200, 100)).astype(np.float32)
    print("compiled on first use, largest error against float64:")
    print(np.abs(matmul(a, b) - a.astype(np.float64) @ b).max())
    by_hand = matmul.scop().schedule().parallel("i")
    print(by_hand.tree)
    print(matmul.compile(schedule=by_hand)(a, b)[:2, :2])


if __name__ == "__main__":
    main()
