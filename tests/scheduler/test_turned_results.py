"""Statements after a contraction that write along the rows of its tiles: whole rows are stored out of registers."""

# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

import numpy as np
import pytest

from polyc import empty, f32, grid, op
from polyc.emit import targets
from polyc.scheduler.strategies.auto import automatic


def turned(m: int, n: int, k: int, keep: bool = False) -> Any:
    """A product whose result is stored by columns, with a bias and a maximum; `keep`: the sums are a result, too."""

    @op
    def product(A: f32[m, k], B: f32[k, n], c: f32[m]) -> (f32[n, m], f32[n, m]) if keep else f32[n, m]:
        T = empty((n, m), f32)
        Y = empty((n, m), f32)
        for i, j in grid(m, n):
            T[j, i] = 0.0
            for p in range(k):
                T[j, i] += A[i, p] * B[p, j]
        for i, j in grid(m, n):
            Y[j, i] = max(T[j, i] + c[i], 0.0)
        if keep:
            return Y, T
        return Y

    return product


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 48), (37, 41, 29), (14, 128, 130), (5, 16, 9), (3, 33, 20)])
def test_results_and_stores(m: int, n: int, k: int, keep: bool, threads: int) -> None:
    kernel = turned(m, n, k, keep).compile(threads=threads, target="x86-64-v3")
    rng = np.random.default_rng()
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m,)))
    sums = (a.astype(np.float64) @ b).T
    found = kernel(a, b, c)
    results = found if keep else (found,)
    for got, wanted in zip(results, (np.maximum(sums + c, 0), sums), strict=False):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_rows_of_an_image_are_stored_whole() -> None:
    """Channels are the lanes of a convolution's vectors, pixels lie side by side: no store of single channels."""
    text = automatic(turned(64, 64, 256).scop(), targets.get("x86-64-v3")).program()
    assert 'promote("Y"' in text and 'promote("T"' in text, text
