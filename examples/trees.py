"""A tree-LSTM over random trees, batched by depth.

Every tree has another shape, so no batch axis runs through all of them; but nodes at one depth do not need each other.
`python examples/trees.py` writes the calls of 64 trees down, runs them as a few batches, holds the states at the roots
against NumPy's, tree by tree, and prints both times (the same compiled functions, called node by node, in between).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import polyc

SIZE, TREES, LARGEST, REPEATS = 64, 64, 30, 5
RNG = np.random.default_rng(0)
LEAF = (RNG.standard_normal((SIZE, 3 * SIZE)) / 8).astype("f")
LEFT, RIGHT = ((RNG.standard_normal((SIZE, 5 * SIZE)) / 8).astype("f") for _ in range(2))
BIAS = RNG.standard_normal(5 * SIZE).astype("f")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def leaf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output and memory of words; the first axis counts them."""
    i, o, u = np.split(x @ LEAF, 3, axis=1)
    c = sigmoid(i) * np.tanh(u)
    return sigmoid(o) * np.tanh(c), c


def node(hl: np.ndarray, cl: np.ndarray, hr: np.ndarray, cr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output and memory of nodes from those of their two children (Tai et al., 1503.00075)."""
    i, fl, fr, o, u = np.split(hl @ LEFT + hr @ RIGHT + BIAS, 5, axis=1)
    c = sigmoid(i) * np.tanh(u) + sigmoid(fl) * cl + sigmoid(fr) * cr
    return sigmoid(o) * np.tanh(c), c


def tree(leaves: int) -> Any:
    """A random binary tree: a word, or a pair of trees."""
    if leaves == 1:
        return RNG.standard_normal(SIZE).astype("f")
    left = int(RNG.integers(1, leaves))
    return tree(left), tree(leaves - left)


def written(batch: polyc.DynamicBatch, t: Any) -> Any:
    """The calls of one tree, written down; its root."""
    if isinstance(t, np.ndarray):
        return batch.call(leaf, t, results=2)
    return batch.call(node, *written(batch, t[0]), *written(batch, t[1]), results=2)


def alone(t: Any, of_word: Callable[..., Any], of_node: Callable[..., Any]) -> Any:
    """One tree by itself, node by node."""
    if isinstance(t, np.ndarray):
        return of_word(t[None])
    return of_node(*alone(t[0], of_word, of_node), *alone(t[1], of_word, of_node))


def milliseconds(run: Callable[[], Any]) -> float:
    """The least time of several runs."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def main() -> None:
    """Print the error and the times."""
    trees = [tree(int(RNG.integers(2, LARGEST))) for _ in range(TREES)]
    batch = polyc.DynamicBatch(threads=1)

    def batched() -> list[Any]:
        return batch.run([written(batch, t) for t in trees])

    found = batched()
    waiting = [written(batch, t) for t in trees]
    calls = batch.calls
    batch.run(waiting)
    wanted = [alone(t, leaf, node) for t in trees]
    error = max(float(np.abs(f[0] - w[0][0]).max()) for f, w in zip(found, wanted, strict=True))
    assert error < 1e-5, error
    print(f"{TREES} trees, {calls} calls in {batch.batches} batches; largest difference from NumPy {error:.1e}")
    words, nodes = polyc.trace(leaf, threads=1), polyc.trace(node, threads=1)
    print(f"batched by depth            {milliseconds(batched):8.1f} ms")
    print(f"compiled, node by node      {milliseconds(lambda: [alone(t, words, nodes) for t in trees]):8.1f} ms")
    print(f"NumPy, node by node         {milliseconds(lambda: [alone(t, leaf, node) for t in trees]):8.1f} ms")


if __name__ == "__main__":
    main()
