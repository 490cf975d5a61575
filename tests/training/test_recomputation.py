"""Recomputation: planned orders against brute force, memory of chains, dynamic eviction, and compiled steps."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import polyc
from polyc.graph_driver.rematerialising.choose import choose
from polyc.graph_driver.rematerialising.dynamic import HEURISTICS, simulate
from polyc.graph_driver.rematerialising.exact import cheapest
from polyc.graph_driver.rematerialising.program import DoesNotFit, Program, Step, measure
from polyc.graph_driver.rematerialising.segments import by_segments


def chain(n: int) -> Program:
    """n layers forward, then backward: each layer's gradient reads its operand, its result and the gradient there."""
    steps = [Step((f"x{k}",), (f"x{k + 1}",)) for k in range(n)]
    steps.append(Step((f"x{n}",), (f"g{n}",)))
    steps += [Step((f"x{k}", f"x{k + 1}", f"g{k + 1}"), (f"g{k}",)) for k in reversed(range(n))]
    sizes = {f"x{k}": 1 for k in range(1, n + 1)} | {f"g{k}": 1 for k in range(n + 1)}
    return Program(tuple(steps), sizes, frozenset(["g0"]))


def random_program(rng: np.random.Generator, steps: int) -> Program:
    """Each step reads one to three earlier values; sizes and costs are small numbers."""
    made: list[str] = ["input"]
    found = []
    for k in range(steps):
        reads = rng.choice(made, min(len(made), int(rng.integers(1, 4))), replace=False)
        found.append(Step(tuple(map(str, reads)), (f"v{k}",), float(rng.integers(1, 5)), bool(rng.random() < 0.9)))
        made.append(f"v{k}")
    sizes = {f"v{k}": int(rng.integers(1, 5)) for k in range(steps)}
    return Program(tuple(found), sizes, frozenset([f"v{steps - 1}"]))


def by_brute_force(program: Program, limit: int, most: int) -> float | None:
    """The least cost of all sequences of up to `most` steps that run everything and keep the limit."""
    best: float | None = None
    count = len(program.steps)
    for length in range(count, most + 1):
        for order in product(range(count), repeat=length):
            cost = sum(program.steps[k].cost for k in order)
            if (best is not None and cost >= best) or len({*order}) < count:
                continue
            try:
                need = measure(program, order)
            except polyc.PolycError:
                continue
            if need.peak <= limit:
                best = need.cost
    return best


def test_memory_of_a_chain_grows_as_the_square_root() -> None:
    depths = [16, 32, 64, 128, 256, 512, 1024]
    peaks = []
    for n in depths:
        program = chain(n)
        order, need = by_segments(program)
        assert need == measure(program, order)
        assert need.cost - program.cost <= n  # one more forward pass
        peaks.append(need.peak)
    exponent = np.polyfit(np.log(depths), np.log(peaks), 1)[0]
    assert exponent <= 0.55, (exponent, peaks)


@pytest.mark.parametrize("seed", range(6))
def test_the_exact_search_is_as_good_as_all_sequences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = random_program(rng, 4)
    plain = measure(program, range(4)).peak
    for limit in range(program.least, plain + 1):
        expected = by_brute_force(program, limit, 7)
        try:
            order = cheapest(program, limit)
        except DoesNotFit:
            assert expected is None
            continue
        assert order is not None
        found = measure(program, order)
        assert found.peak <= limit
        assert expected is None or found.cost <= expected
        assert len(order) > 7 or found.cost == expected


def test_the_heuristics_are_near_the_exact_search() -> None:
    """On random programs of 9 steps, which the exact search decides."""
    rng = np.random.default_rng(7)
    ratios = []
    for _ in range(25):
        program = random_program(rng, 9)
        plain = measure(program, range(9))
        limit = max(program.least, int(plain.peak * 0.75))
        try:
            exact = measure(program, cheapest(program, limit) or [])
        except DoesNotFit:
            continue
        orders = []
        for name in HEURISTICS:
            try:
                orders.append(simulate(program, limit, name).cost)
            except DoesNotFit:
                continue
        assert all(cost >= exact.cost for cost in orders)
        chosen = choose(program, limit)
        assert chosen.need.peak <= limit and chosen.need.cost == exact.cost
        ratios += [min(orders) / exact.cost] if orders else []
    assert len(ratios) > 10 and np.median(ratios) < 1.2


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_dynamic_eviction_on_a_chain(heuristic: str) -> None:
    """Values are those of a run without a limit, and no more is held than the limit allows."""
    program = chain(40)

    def run(k: int, reads: list[float]) -> list[float]:
        return [math.sin(k + 1.0) + sum(math.cos(r) for r in reads)]

    free = simulate(program, 10**6, heuristic, run, {"x0": 1.0})
    held = simulate(program, 16, heuristic, run, {"x0": 1.0})
    assert held.values == free.values and held.values["g0"] is not None
    assert free.steps == len(program.steps) < held.steps and held.peak <= 16


def test_dynamic_eviction_needs_the_root_of_the_memory_and_linear_work() -> None:
    for n in (64, 256, 1024):
        ran = simulate(chain(n), 4 * math.isqrt(n))
        assert ran.peak <= 4 * math.isqrt(n) and ran.steps <= 2 * (2 * n + 1)


def test_what_cannot_fit_is_said_with_numbers() -> None:
    program = chain(8)
    with pytest.raises(DoesNotFit, match="one step needs 4 B, more than the memory limit of 3 B"):
        choose(program, 3)
    with pytest.raises(DoesNotFit):
        simulate(program, 3)


def network(layers: int, width: int = 64, batch: int = 64) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for k in range(layers):
        w = (rng.standard_normal((width, width)) / np.sqrt(width)).astype("f")
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        nodes += [helper.make_node("MatMul", [x, f"w{k}"], [f"h{k}"]), helper.make_node("Tanh", [f"h{k}"], [f"a{k}"])]
        x = f"a{k}"
    values = [helper.make_tensor_value_info(n, 1, [batch, width]) for n in ("x", x)]
    graph = helper.make_graph(nodes, "deep", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_step_within_half_of_its_memory_has_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal((64, 64)).astype("f") for n in ("x", "target")}
    plain = polyc.training(network(12), "MeanSquaredError", threads=1)
    loss, gradients = plain.gradients(feeds)
    peak = plain.compiled(feeds).model.plan.peak
    half = polyc.training(network(12), "MeanSquaredError", threads=1, memory_limit=peak // 2)
    again, found = half.gradients(feeds)
    assert half.compiled(feeds).model.plan.peak <= peak // 2
    assert loss == again
    for name, g in gradients.items():
        np.testing.assert_array_equal(g, found[name])
    assert any("run again" in note for note in half.compiled(feeds).model.report().notes)


def test_a_limit_that_nothing_keeps_is_refused_when_compiling() -> None:
    feeds = {n: np.zeros((64, 64), "f") for n in ("x", "target")}
    message = "the arena needs .* more than the memory limit of 20.00 kB.*; nothing is computed again"
    with pytest.raises(polyc.ModelError, match=message):
        polyc.training(network(4), "MeanSquaredError", threads=1, memory_limit=20_000).gradients(feeds)
