"""The small operators with shapes of their arguments, for GPU tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from small_operators import chain, jacobi, layer_norm, matmul, matmul_bias_relu, softmax, transpose

ALL: dict[str, tuple[Any, Callable[[int, int, int], list[tuple[int, ...]]]]] = {
    "matmul": (matmul, lambda m, n, k: [(m, k), (k, n)]),
    "matmul_bias_relu": (matmul_bias_relu, lambda m, n, k: [(m, k), (k, n), (n,)]),
    "transpose": (transpose, lambda m, n, k: [(m, n)]),
    "chain": (chain, lambda m, n, k: [(m, n), (n,)]),
    "softmax": (softmax, lambda m, n, k: [(m, n)]),
    "layer_norm": (layer_norm, lambda m, n, k: [(m, n), (n,)]),
    "jacobi": (jacobi, lambda m, n, k: [(m, n)]),
}
"""Operator and the shapes of its arguments for sizes M, N, K."""


def arguments(name: str, sizes: tuple[int, int, int], seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, shape).astype("f4") for shape in ALL[name][1](*sizes)]
