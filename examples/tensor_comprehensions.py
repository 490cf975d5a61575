"""The kernels that the paper on Tensor Comprehensions (Vasilache et al., arXiv 1802.04730, section 7) measures, as
operators: a product with a transposed operand, a batch of them, a convolution in groups, and the parts of a
recommendation model (sums of looked-up rows, perceptrons). No operator has a schedule: polyc makes it."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc import dims, empty, f32, grid, i32, op

B, M, N, K, G, C, F, H, W, R, S, E, D, L, E2, L2 = dims("B M N K G C F H W R S E D L E2 L2")
N1, N2, N3 = dims("N1 N2 N3")


@op
def tmm(A: f32[M, K], X: f32[N, K]) -> f32[M, N]:
    Z = empty((M, N), f32)
    for m, n in grid(M, N):
        Z[m, n] = 0.0
        for k in range(K):
            Z[m, n] += A[m, k] * X[n, k]
    return Z


@op
def tbmm(X: f32[B, N, K], Y: f32[B, M, K]) -> f32[B, N, M]:
    Z = empty((B, N, M), f32)
    for b, n, m in grid(B, N, M):
        Z[b, n, m] = 0.0
        for k in range(K):
            Z[b, n, m] += X[b, n, k] * Y[b, m, k]
    return Z


@op
def group_convolution(
    X: f32[B, G, C, H + R - 1, W + S - 1], Y: f32[G, F, C, R, S], bias: f32[G, F]
) -> f32[B, G, F, H, W]:
    Z = empty((B, G, F, H, W), f32)
    for b, g, f, h, w in grid(B, G, F, H, W):
        Z[b, g, f, h, w] = bias[g, f]
        for c, r, s in grid(C, R, S):
            Z[b, g, f, h, w] += X[b, g, c, h + r, w + s] * Y[g, f, c, r, s]
    return Z


@op
def lut1(table: f32[E, D], index: i32[B, L]) -> f32[B, D]:
    Z = empty((B, D), f32)
    for b, d in grid(B, D):
        Z[b, d] = 0.0
        for k in range(L):
            Z[b, d] += table[index[b, k], d]
    return Z


@op
def lut2(table: f32[E, D], index: i32[B, L], other: f32[E2, D], choice: i32[B, L2]) -> tuple[f32[B, D], f32[B, D]]:
    return lut1(table, index), lut1(other, choice)


@op
def mlp1(X: f32[B, M], Y: f32[N, M], bias: f32[N]) -> f32[B, N]:
    Z = empty((B, N), f32)
    for b, n in grid(B, N):
        Z[b, n] = bias[n]
        for m in range(M):
            Z[b, n] += X[b, m] * Y[n, m]
        Z[b, n] = max(Z[b, n], 0.0)
    return Z


@op
def mlp3(
    X: f32[B, M], Y1: f32[N1, M], b1: f32[N1], Y2: f32[N2, N1], b2: f32[N2], Y3: f32[N3, N2], b3: f32[N3]
) -> f32[B, N3]:
    return mlp1(mlp1(mlp1(X, Y1, b1), Y2, b2), Y3, b3)


def convolved(x: np.ndarray, y: np.ndarray, bias: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, y.shape[3:], (3, 4))
    return np.asarray(np.einsum("bgchwrs,gfcrs->bgfhw", windows, y, optimize=True) + bias[:, :, None, None])


def layers(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    for y, bias in zip(weights[::2], weights[1::2], strict=True):
        x = np.maximum(x @ y.T + bias, 0)
    return x


REFERENCES: dict[str, Callable[..., Any]] = {
    "tmm": lambda a, x: a @ x.T,
    "tbmm": lambda x, y: x @ y.transpose(0, 2, 1),
    "group_convolution": convolved,
    "lut1": lambda table, index: table[index].sum(1),
    "lut2": lambda table, index, other, choice: (table[index].sum(1), other[choice].sum(1)),
    "mlp1": layers,
    "mlp3": layers,
}
"""What each computes, by NumPy."""


def arguments(name: str, small: bool = False) -> list[np.ndarray]:
    """Random ones: of the paper's kind of sizes, or a few elements each."""
    rng = np.random.default_rng(3)

    def real(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)

    def rows(of: int, *shape: int) -> np.ndarray:
        return rng.integers(0, of, shape, dtype=np.int32)

    if name == "tmm":
        return [real(7, 9), real(5, 9)] if small else [real(128, 1024), real(256, 1024)]
    if name == "tbmm":
        return [real(3, 5, 7), real(3, 4, 7)] if small else [real(100, 26, 72), real(100, 26, 72)]
    if name == "group_convolution":
        b, g, c, f, n = (2, 3, 2, 4, 5) if small else (4, 32, 4, 4, 28)
        return [real(b, g, c, n + 2, n + 2), real(g, f, c, 3, 3), real(g, f)]
    if name in ("lut1", "lut2"):
        e, d, b, k = (11, 3, 4, 5) if small else (100_000, 64, 128, 50)
        one = [real(e, d), rows(e, b, k)]
        return one if name == "lut1" else [*one, real(e + 1, d), rows(e + 1, b, k + 1)]
    widths = [6, 5, 4, 3] if small else [2000, 128, 64, 32]
    last = 1 if name == "mlp1" else 3
    weights = [w for m, n in zip(widths[:last], widths[1:], strict=False) for w in (real(n, m), real(n))]
    return [real(4 if small else 128, widths[0]), *weights]


OPERATORS = {"tmm": tmm, "tbmm": tbmm, "group_convolution": group_convolution, "lut1": lut1, "lut2": lut2, "mlp1": mlp1,
             "mlp3": mlp3}  # fmt: skip


def main() -> None:
    for name, operator in OPERATORS.items():
        given = arguments(name)
        found = operator(*given)
        expected = REFERENCES[name](*[g.astype(np.float64) if g.dtype == np.float32 else g for g in given])
        pairs = list(zip(found, expected, strict=True)) if isinstance(found, tuple) else [(found, expected)]
        error = max(np.abs(f - e).max() / np.abs(e).max() for f, e in pairs)
        assert error < 1e-5, (name, error)
        seconds = min(once(operator, given) for _ in range(5))
        print(f"{name:18s} {1e6 * seconds:9.1f} us, largest error {error:.1e} of the largest result")


def once(operator: Callable[..., Any], given: list[np.ndarray]) -> float:
    start = time.perf_counter()
    operator(*given)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
