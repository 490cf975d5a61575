"""The order of steps: the best peak on small graphs by trying all orders, and the same results in any order."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from onnx import helper
from tiny_models import model_of

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.memory.order import BEAM, Item, best_order, peak_of


def random_items(rng: np.random.Generator, count: int) -> tuple[list[Item], dict[str, int]]:
    items, made = [], []
    for k in range(count):
        sources = [j for j in range(k) if rng.random() < 0.35]
        items.append(Item(frozenset(sources), frozenset([f"t{k}", *(made[j] for j in sources)])))
        made.append(f"t{k}")
    return items, {t: int(rng.integers(1, 30)) for t in made if rng.random() < 0.9}


def allowed(items: list[Item], order: tuple[int, ...]) -> bool:
    place = {k: n for n, k in enumerate(order)}
    return sorted(order) == list(range(len(items))) and all(
        place[b] < place[k] for k, i in enumerate(items) for b in i.after
    )


def test_the_best_of_all_orders() -> None:
    rng = np.random.default_rng()
    for _ in range(40):
        items, sizes = random_items(rng, int(rng.integers(1, 8)))
        found = best_order(items, sizes)
        best = min(peak_of(items, sizes, p) for p in permutations(range(len(items))) if allowed(items, p))
        assert found.proved and found.peak == best == peak_of(items, sizes, found.steps) and allowed(items, found.steps)


def test_large_graphs_never_get_worse() -> None:
    rng = np.random.default_rng()
    for _ in range(5):
        items, sizes = random_items(rng, 40)
        found = best_order(items, sizes, BEAM)
        assert allowed(items, found.steps) and found.peak == peak_of(items, sizes, found.steps)
        assert found.peak <= peak_of(items, sizes, range(40))


def test_branches_run_one_after_another() -> None:
    """Four branches that each need a large tensor for a small result, written breadth first."""
    nodes: list[Any] = [helper.make_node("MatMul", ["x", f"a{k}"], [f"big{k}"]) for k in range(4)]
    nodes += [helper.make_node("MatMul", [f"big{k}", f"b{k}"], [f"small{k}"]) for k in range(4)]
    nodes.append(helper.make_node("Sum", [f"small{k}" for k in range(4)], ["y"]))
    rng = np.random.default_rng()
    weights = {f"a{k}": rng.standard_normal((4, 512)).astype(np.float32) for k in range(4)}
    weights |= {f"b{k}": rng.standard_normal((512, 4)).astype(np.float32) for k in range(4)}
    model = compile_model(model_of(nodes, {"x": [64, 4]}, {"y": [64, 4]}, weights), threads=1)
    big = 64 * 512 * 4
    assert big <= model.plan.peak < 2 * big
    assert any("another order" in n for n in model.report().notes)
    x = rng.standard_normal((64, 4)).astype(np.float32)
    expected = sum(x @ weights[f"a{k}"] @ weights[f"b{k}"] for k in range(4))
    np.testing.assert_allclose(model({"x": x})["y"], expected, rtol=1e-4, atol=1e-3)
