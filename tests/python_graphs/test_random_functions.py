"""Random functions: NumPy, the recorded graph, and its kernels agree."""

from typing import Any

import numpy as np
import pytest
from random_functions import function

import polyc


def close(seed: int, wanted: Any, found: Any) -> None:
    """Types and shapes equal, values near; of steps that jump (floor, %) a few elements may be on the other side."""
    for a, b in zip(wanted, found, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), seed
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        off = ~np.isclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True)
        assert off.mean() <= 0.02, (seed, a[off][:4], b[off][:4])


def arrays(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1000 + seed)
    shapes = [(4, 6), (6,), (2, 3, 4), (5, 1), (8,)]
    x, y = (rng.standard_normal(shapes[rng.integers(len(shapes))]).astype("f") for _ in range(2))
    return x, y


def agree(seed: int, compiled: bool) -> None:
    traced = polyc.trace(function(seed), threads=1)
    x, y = arrays(seed)
    kept = x.copy(), y.copy()
    with np.errstate(all="ignore"):
        wanted = traced.eager(x, y)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for run in (traced.interpreted, traced) if compiled else (traced.interpreted,):
            found = run(x, y)
            close(seed, wanted, found if isinstance(found, tuple) else (found,))
    np.testing.assert_array_equal(x, kept[0])
    np.testing.assert_array_equal(y, kept[1])


@pytest.mark.parametrize("seed", range(60))
def test_graphs(seed: int) -> None:
    agree(seed, compiled=False)


@pytest.mark.parametrize("seed", range(100, 112))
def test_kernels(seed: int) -> None:
    agree(seed, compiled=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 400))
def test_more_kernels(seed: int) -> None:
    agree(seed, compiled=True)
