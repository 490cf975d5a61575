"""Tensors dropped while a compiled model runs: the rules against memory cells that really are overwritten, and compiled
models against runs without a limit, bit for bit."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from test_recomputation import network

import polyc
from polyc.graph_driver import cli
from polyc.graph_driver.execution.evicting_run import states
from polyc.graph_driver.rematerialising.dynamic import HEURISTICS, Runtime
from polyc.graph_driver.rematerialising.program import DoesNotFit, Step


class Cell:
    """Memory of one value: bytes and what is written there."""

    alive: weakref.WeakSet[Cell] = weakref.WeakSet()

    def __init__(self, size: int, value: object) -> None:
        self.size, self.value = size, value
        Cell.alive.add(self)

    def __copy__(self) -> Cell:
        return Cell(self.size, self.value)


def overwriting_program(rng: np.random.Generator, length: int) -> tuple[list[Step], dict[str, int], dict[str, str]]:
    """Random steps, of which some write their result over an operand that no later step reads."""
    steps: list[Step] = []
    sizes: dict[str, int] = {}
    takes: dict[str, str] = {}
    there = ["input"]
    for k in range(length):
        name = f"v{k}"
        reads = [str(r) for r in rng.choice(there, min(len(there), int(rng.integers(1, 4))), replace=False)]
        sizes[name] = int(rng.integers(1, 5))
        if rng.random() < 0.4 and (old := [r for r in reads if r != "input"]):
            takes[name] = old[0]
            sizes[name] = sizes[old[0]]
            there.remove(old[0])
        steps.append(Step(tuple(reads), (name,), float(rng.integers(1, 5)), bool(rng.random() < 0.85)))
        there.append(name)
    return steps, sizes, takes


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_results_over_operands_are_those_of_memory_that_nobody_overwrites(heuristic: str) -> None:
    """Every step computes with what its cells hold at that moment; cells that are alive are counted by Python."""
    rng = np.random.default_rng(len(heuristic))
    tried = again = 0
    for _ in range(60):
        steps, sizes, takes = overwriting_program(rng, 14)
        meaning: dict[str, object] = {"input": "input"}
        for k, step in enumerate(steps):
            meaning[step.makes[0]] = (k, *(meaning[r] for r in step.reads))
        last = {v: k for k, step in enumerate(steps) for v in (*step.reads, *step.makes)}
        everything = sum(sizes.values())
        for limit in range(4, everything, 3):
            Cell.alive.clear()
            runtime = Runtime(limit, heuristic)
            runtime.outside["input"] = Cell(0, "input")
            most = 0

            def run(number: int, given: Sequence[Any]) -> Sequence[Any]:
                nonlocal most
                step = steps[number]  # noqa: B023
                value = (number, *(cell.value for cell in given))
                assert value == meaning[step.makes[0]]  # noqa: B023
                old = takes.get(step.makes[0])  # noqa: B023
                cell = given[step.reads.index(old)] if old else Cell(sizes[step.makes[0]], None)  # noqa: B023
                cell.value = value
                most = max(most, sum(c.size for c in Cell.alive))
                return [cell]

            try:
                for k, step in enumerate(steps):
                    runtime.add(step, sizes, run, {m: takes[m] for m in step.makes if m in takes})
                    for v in {*step.reads, *step.makes}:
                        if last[v] == k and v != steps[-1].makes[0]:
                            runtime.forget(v)
            except DoesNotFit:
                continue
            assert runtime.value(steps[-1].makes[0], run).value == meaning[steps[-1].makes[0]]
            gc.collect(0)
            assert most <= limit and runtime.peak <= limit
            tried, again = tried + 1, again + (runtime.ran > len(steps))
    assert tried > 100 and again > 20, (tried, again)


def test_what_cannot_be_made_again_stays_as_long_as_others_are_made_of_it() -> None:
    """A value that nobody reads any more, but that a dropped one is made of."""
    runtime = Runtime(2)
    ran = []

    def run(number: int, given: Sequence[Any]) -> Sequence[Any]:
        ran.append(number)
        return [number]

    sizes = dict.fromkeys("abc", 1)
    runtime.add(Step((), ("a",), again=False), sizes, run)
    runtime.add(Step(("a",), ("b",)), sizes, run)
    runtime.forget("a")
    runtime.add(Step((), ("c",)), sizes, run)  # drops b
    runtime.forget("c")
    assert runtime.value("b", run) == 1 and ran == [0, 1, 2, 1]
    runtime.forget("b")
    assert runtime.bytes == 0  # nothing can be made of a any more


def branching() -> onnx.ModelProto:
    """Branches of unequal cost, a join of parts in one memory, views, an operator on the host, two results."""
    rng = np.random.default_rng(3)
    weights = [numpy_helper.from_array((rng.standard_normal((48, 48)) / 7).astype("f"), f"w{k}") for k in range(6)]
    integers = {"shape": [32, 96], "first": [0], "sixteenth": [16]}
    weights += [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in integers.items()]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"])]
    for k in range(4):
        nodes += [
            helper.make_node("MatMul", ["a" if k % 2 else f"t{k - 1}" if k else "x", f"w{k + 1}"], [f"m{k}"]),
            helper.make_node("Softmax", [f"m{k}"], [f"t{k}"]),
        ]
    nodes += [
        helper.make_node("Concat", ["t0", "t1", "t2", "t3"], ["joined"], axis=0),
        helper.make_node("MatMul", ["joined", "w5"], ["mixed"]),
        helper.make_node("Softmax", ["mixed"], ["soft"]),
        helper.make_node("Add", ["soft", "joined"], ["sum"]),
        helper.make_node("Reshape", ["sum", "shape"], ["flat"]),
        helper.make_node("ReduceSum", ["flat"], ["y"], keepdims=0),
        helper.make_node("Slice", ["sum", "first", "sixteenth", "first"], ["top"]),
        helper.make_node("MatMul", ["a", "w0"], ["late"]),
        helper.make_node("Add", ["top", "late"], ["z"]),
    ]
    values = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [16, 48]), ("y", []), ("z", [16, 48]))]
    graph = helper.make_graph(nodes, "branching", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_graph_with_parts_and_results_in_place() -> None:
    model = polyc.compile_model(branching(), threads=1)
    found = states(model.plan)
    assert any(s.takes for s in found), "nothing is written over or beside something"
    x = np.random.default_rng(4).standard_normal((16, 48)).astype("f")
    expected = model({"x": x})
    _, free = model.run_within({"x": x}, 10**9)
    assert free.ran == free.steps and free.peak <= model.plan.peak
    fitted = dropped = 0
    for heuristic in HEURISTICS:
        for limit in range(free.peak // 4, free.peak + 1, 1024):
            try:
                results, evicted = model.run_within({"x": x}, limit, heuristic)
            except DoesNotFit as refusal:
                assert f"the limit is {limit}" in str(refusal)
                continue
            fitted, dropped = fitted + 1, dropped + evicted.dropped
            assert evicted.peak <= limit
            for name, value in expected.items():
                np.testing.assert_array_equal(results[name], value)
    assert fitted and dropped


def test_a_budget_sweep_needs_the_root_of_the_memory_and_linear_work() -> None:
    """The paper's linear network as compiled kernels: O(sqrt n) bytes, O(n) kernels, the same bits."""
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal((16, 16)).astype("f") for n in ("x", "target")}
    value = 16 * 16 * 4
    peaks, depths = [], [16, 36, 64]
    for n in depths:
        plain = polyc.training(network(n, 16, 16), "MeanSquaredError", threads=1)
        plain.gradients(feeds)
        model, given = plain.compiled(feeds).model, {**feeds, **plain.parameters}
        expected = model(given)
        assert model.plan.peak >= n * value  # without a limit all activations
        for share in (3, 4, 6):
            limit = share * math.isqrt(n) * value
            results, evicted = model.run_within(given, limit)
            assert evicted.peak <= limit and evicted.ran <= 1.5 * evicted.steps
            assert all((results[k] == v).all() for k, v in expected.items())
            peaks += [evicted.peak] if share == 3 else []
    assert np.polyfit(np.log(depths), np.log(peaks), 1)[0] <= 0.6


def test_training_within_a_limit_at_run_time_has_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal((64, 64)).astype("f") for n in ("x", "target")}
    plain = polyc.training(network(8), "MeanSquaredError", threads=1)
    peak = plain.compiled(feeds).model.plan.peak
    held = polyc.training(
        network(8), "MeanSquaredError", threads=1, memory_limit=peak // 2, recompute="at_run_time"
    )  # fmt: skip
    for _ in range(3):
        assert plain.step(feeds, polyc.AdamW(0.01)) == held.step(feeds, polyc.AdamW(0.01))
        evicted = held.evicted
        assert evicted is not None and evicted.peak <= peak // 2 and evicted.dropped and evicted.ran > evicted.steps
    for name, weight in plain.parameters.items():
        np.testing.assert_array_equal(weight, held.parameters[name])


def test_refusals() -> None:
    feeds = {n: np.zeros((64, 64), "f") for n in ("x", "target")}
    with pytest.raises(polyc.ArgumentError, match="needs memory_limit, a number of bytes, not None"):
        polyc.training(network(2), "MeanSquaredError", recompute="at_run_time")
    with pytest.raises(polyc.ArgumentError, match="recompute is 'planned' or 'at_run_time', not 'never'"):
        polyc.training(network(2), "MeanSquaredError", recompute="never")
    small = polyc.training(network(2), "MeanSquaredError", threads=1, memory_limit=100, recompute="at_run_time")
    with pytest.raises(DoesNotFit, match="bytes are needed at once, the limit is 100"):
        small.gradients(feeds)
    model = polyc.compile_model(network(2), threads=1)
    with pytest.raises(polyc.ArgumentError, match="there is no heuristic 'best': they are dtr, local, lru, size"):
        model.run_within({"x": feeds["x"]}, 10**6, "best")
    with pytest.raises(polyc.ArgumentError, match="a memory limit is a number of bytes, not -1"):
        model.run_within({"x": feeds["x"]}, -1)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(branching(), path)
    run = ["run", str(path), "--threads", "1"]
    assert cli.main([*run, "--save", str(tmp_path / "plain.npz")]) == 0
    within = [*run, "--mode", "evicting", "--memory-limit", "25000", "--save", str(tmp_path / "within.npz")]
    assert cli.main(within) == 0
    assert "tensors dropped for others, at most 24576 bytes held (limit 25000)" in capsys.readouterr().out
    plain, found = np.load(tmp_path / "plain.npz"), np.load(tmp_path / "within.npz")
    assert all((plain[name] == found[name]).all() for name in ("y", "z"))
    assert cli.main([*run, "--mode", "evicting"]) == 2
    assert "--mode evicting and --memory-limit go together" in capsys.readouterr().err
