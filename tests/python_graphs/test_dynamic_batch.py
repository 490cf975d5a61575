"""Batches of trees: equal to each tree by itself, with a batch for each depth and function."""

from typing import Any

import numpy as np
import pytest

import polyc
from examples.trees import RNG, SIZE, alone, leaf, node, tree, written


def depth(t: Any) -> int:
    return 0 if isinstance(t, np.ndarray) else 1 + max(map(depth, t))


def test_tree_lstm() -> None:
    trees = [tree(int(RNG.integers(1, 20))) for _ in range(40)]
    batch = polyc.DynamicBatch(threads=1)
    for _ in range(2):
        roots = [written(batch, t) for t in trees]
        calls = batch.calls
        found = batch.run(roots)
        for t, (h, c) in zip(trees, found, strict=True):
            for a, b in zip(alone(t, leaf, node), (h, c), strict=True):
                np.testing.assert_allclose(b, a[0], rtol=1e-5, atol=1e-5)
        assert batch.batches == 1 + max(map(depth, trees)) < calls
    assert all(t.count == 1 for t in batch._traced.values())  # one program for all sizes of batches
    assert batch.calls == 0


def test_operands_of_several_kinds() -> None:
    batch = polyc.DynamicBatch(threads=1)

    def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def total(a: np.ndarray) -> np.ndarray:
        return a.sum(axis=1)

    x = [np.full(n, float(n), "f") for n in (2, 3, 2)]
    sums = [batch.call(add, v, v) for v in x]
    more = [batch.call(add, s, v) for s, v in zip(sums, x)] + [batch.call(add, x[0], sums[2])]
    scalars = [batch.call(total, m) for m in more]
    assert [float(v) for v in batch.run(scalars)] == [12.0, 27.0, 12.0, 12.0]


def test_refusals() -> None:
    batch, other = polyc.DynamicBatch(), polyc.DynamicBatch()
    x = np.ones(3, "f")
    first = batch.call(np.negative, x)
    with pytest.raises(polyc.ArgumentError, match=r"batch.py:\d+: operand 0 of negative is of another batch"):
        other.call(np.negative, first)
    with pytest.raises(polyc.ArgumentError, match="had 1 results before, not 2"):
        batch.call(np.negative, x, results=2)
    with pytest.raises(polyc.ArgumentError, match="no array and no pending result"):
        batch.call(np.negative, None)
    with pytest.raises(polyc.ArgumentError, match="is no result of a call"):
        batch.run([x])
    batch.call(leaf, np.ones(SIZE, "f"))
    with pytest.raises(polyc.ArgumentError, match="leaf returned 2 arrays, not 1"):
        batch.run([first])
    with pytest.raises(polyc.ArgumentError, match="has run"):
        batch.call(np.negative, first)
    batch.call(np.sum, x)
    with pytest.raises(polyc.ArgumentError, match="its first axis counts the calls"):
        batch.run([])
