"""What is timed: operators, their inputs, what they compute in float64, and how fast they are to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from examples.matmul import matmul
from polyc import bf16, dims, empty, exp, f32, grid, op
from polyc.frontend_dsl.library.convolution import make_conv2d
from polyc.frontend_dsl.library.normalization import make_layer_norm, make_softmax_rows

M, N, K = dims("M N K")
EPSILON = 1e-5
Arrays = Sequence[Any]


@op
def bf16_product(A: bf16[M, K], B: bf16[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += f32(A[i, k]) * f32(B[k, j])
    return C


@op
def chain(X: f32[M, N], Y: f32[M, N]) -> f32[M, N]:
    """A gated unit: reads two arrays once, writes one."""
    Z = empty((M, N), f32)
    for i, j in grid(M, N):
        Z[i, j] = max(X[i, j] * 1.5 + 0.25, 0.0) * (Y[i, j] / (1.0 + exp(-Y[i, j])))
    return Z


@dataclass(frozen=True)
class Case:
    """One operator at one size. `exact(xp, *inputs)` computes it with `xp` (numpy or torch) from float64 arrays.

    `rival(torch, *tensors)` is another system's way (`against` says which: a library, or the speed of a copy of
    `moved` bytes). `share` is what is wanted of its speed; `limit` bounds the error relative to the largest value.
    """

    name: str
    operator: Any
    inputs: Callable[[np.random.Generator], list[np.ndarray]]
    exact: Callable[..., Any]
    rival: Callable[..., Any]
    against: str
    share: float
    flops: float
    moved: float
    limit: float


def cases(quick: bool = False) -> list[Case]:
    """All operators; `quick`: at sizes to try the program with."""
    products = [_f32_product(quick), _bf16_product(quick), _convolution(quick)]
    return [*products, _chain(quick), _softmax(quick), _layer_norm(quick)]


def _f32_product(quick: bool) -> Case:
    n = 96 if quick else 4096
    return Case(
        f"f32 product {n}", matmul, lambda r: [_normal(r, n, n), _normal(r, n, n)], lambda xp, a, b: a @ b,
        lambda torch, a, b: torch.matmul(a, b), "cuBLAS", 0.75, 2.0 * n**3, 3 * 4.0 * n * n, 1e-5,
    )  # fmt: skip


def _bf16_product(quick: bool) -> Case:
    n = 96 if quick else 4096

    def inputs(r: np.random.Generator) -> list[np.ndarray]:
        return [_normal(r, n, n).astype(ml_dtypes.bfloat16) for _ in range(2)]

    return Case(
        f"bf16 product {n}", bf16_product, inputs, lambda xp, a, b: a @ b, lambda torch, a, b: torch.matmul(a, b),
        "cuBLAS", 0.5, 2.0 * n**3, (2 * 2 + 4.0) * n * n, 1e-5,
    )  # fmt: skip


def _convolution(quick: bool) -> Case:
    """3 x 3, as in the second stage of ResNet-50; its rival is the library that torch takes for it, cuDNN."""
    batch, channels, size = (1, 8, 9) if quick else (32, 64, 56)
    one = (1, 1)
    operator = make_conv2d(f32, batch, (channels, channels), (size, size), (3, 3), one, one, one, one, False)

    def inputs(r: np.random.Generator) -> list[np.ndarray]:
        return [_normal(r, batch, channels, size, size), _normal(r, channels, channels, 3, 3)]

    def exact(xp: Any, x: Any, w: Any) -> Any:
        shape = (batch, channels, size + 2, size + 2)
        padded = x.new_zeros(shape) if hasattr(x, "new_zeros") else np.zeros(shape)
        padded[:, :, 1:-1, 1:-1] = x
        taps = [(i, j) for i in range(3) for j in range(3)]
        return sum(xp.einsum("nchw,kc->nkhw", padded[:, :, i : i + size, j : j + size], w[:, :, i, j]) for i, j in taps)

    flops, weights = 18.0 * batch * channels**2 * size**2, 9 * channels**2
    return Case(
        f"convolution 3x3 {channels}x{size}x{size}, batch {batch}", operator, inputs, exact,
        lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1), "cuDNN", 0.75, flops,
        4.0 * (2 * batch * channels * size**2 + weights), 1e-5,
    )  # fmt: skip


def _rows(quick: bool) -> tuple[int, int]:
    return (37, 128) if quick else (32768, 4096)


def _chain(quick: bool) -> Case:
    m, n = _rows(quick)

    def exact(xp: Any, x: Any, y: Any) -> Any:
        gate = x * 1.5 + 0.25
        return gate * (gate > 0) * y / (1 + xp.exp(-y))

    def rival(torch: Any, x: Any, y: Any) -> Any:
        return torch.relu(x * 1.5 + 0.25) * torch.nn.functional.silu(y)

    return Case(f"pointwise chain {m}x{n}", chain, lambda r: [_normal(r, m, n), _normal(r, m, n)], exact, rival, "copy",
                0.85, 8.0 * m * n, 3 * 4.0 * m * n, 1e-5)  # fmt: skip


def _softmax(quick: bool) -> Case:
    m, n = _rows(quick)

    def exact(xp: Any, x: Any) -> Any:
        e = xp.exp(x)  # of numbers near 0: no care is needed
        return e / e.sum(-1)[:, None]

    return Case(f"softmax {m}x{n}", make_softmax_rows(f32, (m,), n), lambda r: [_normal(r, m, n)], exact,
                lambda torch, x: torch.softmax(x, -1), "copy", 0.85, 5.0 * m * n, 2 * 4.0 * m * n, 1e-5)  # fmt: skip


def _layer_norm(quick: bool) -> Case:
    m, n = _rows(quick)

    def inputs(r: np.random.Generator) -> list[np.ndarray]:
        return [_normal(r, m, n), _normal(r, n), _normal(r, n)]

    def exact(xp: Any, x: Any, s: Any, b: Any) -> Any:
        centred = x - x.mean(-1)[:, None]
        return centred / xp.sqrt((centred * centred).mean(-1)[:, None] + EPSILON) * s + b

    def rival(torch: Any, x: Any, s: Any, b: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (n,), s, b, EPSILON)

    return Case(f"layer norm {m}x{n}", make_layer_norm(f32, m, n, EPSILON, True), inputs, exact, rival, "copy", 0.85,
                8.0 * m * n, 2 * 4.0 * m * n, 1e-5)  # fmt: skip


def _normal(r: np.random.Generator, *shape: int) -> np.ndarray:
    return r.standard_normal(shape, np.float32)
