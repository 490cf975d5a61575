"""Tensors that lie over others while these die: peaks, results with a poisoned arena, and plans that are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import polyc
from polyc.graph_driver import memory
from polyc.graph_driver.checking.poison import differs, poisoned_run
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Place
from polyc.graph_driver.planning.verify_plan import check_plan
from polyc.poly.errors import ArgumentError, BuildError, OptionError

RNG = np.random.default_rng(5)


def model(nodes: list[Any], x: list[int], weights: dict[str, np.ndarray], outputs: list[str]) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info("x", 1, x)]
    results = [helper.make_tensor_value_info(o, 1, None) for o in outputs]
    inits = [onnx.numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", values, results, inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def conv_chain(channels: list[int], size: int) -> onnx.ModelProto:
    nodes, weights, at = [], {}, "x"
    for k, (c, o) in enumerate(zip(channels, channels[1:])):
        weights[f"w{k}"] = (RNG.standard_normal((o, c, 3, 3)) / np.sqrt(9 * c)).astype("f")
        nodes += [helper.make_node("Conv", [at, f"w{k}"], [f"c{k}"], pads=[1] * 4),
                  helper.make_node("Relu", [f"c{k}"], [f"y{k}"])]  # fmt: skip
        at = f"y{k}"
    nodes.append(helper.make_node("GlobalAveragePool", [at], ["out"]))
    return model(nodes, [1, channels[0], size, size], weights, ["out"])


def mixed() -> onnx.ModelProto:
    """Slices, concatenations, pooling of two kinds, a transpose, unequal sizes."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Slice", ["b", "from", "to", "axes"], ["c"]),
        helper.make_node("AveragePool", ["c"], ["d"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Concat", ["c", "d"], ["e"], axis=3),
        helper.make_node("Transpose", ["e"], ["f"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["f", "m"], ["g"]),
        helper.make_node("Softmax", ["g"], ["h"]),
        helper.make_node("ReduceSum", ["h", "axes"], ["out"], keepdims=0),
    ]
    weights: dict[str, np.ndarray] = {
        "from": np.array([3]), "to": np.array([17]), "axes": np.array([2]),
        "m": RNG.standard_normal((14, 40)).astype("f"),
    }  # fmt: skip
    return model(nodes, [1, 12, 40, 44], weights, ["out"])


def checked(m: onnx.ModelProto, threads: int = 1) -> tuple[polyc.Model, polyc.Model]:
    """The model as usual and with the smallest arena, whose results agree for several inputs in one arena."""
    usual = polyc.compile_model(m, threads=threads, disable=["winograd"], planner="exact")
    small = polyc.compile_model(m, threads=threads, memory="minimal")
    shape = [d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim]
    for _ in range(2):
        x = RNG.standard_normal(shape).astype("f")
        for name, wanted in usual({"x": x}).items():
            np.testing.assert_allclose(small({"x": x})[name], wanted, rtol=2e-5, atol=2e-6)
        assert differs(poisoned_run(small, {"x": x}), small({"x": x})) == []
    assert small.plan.peak <= usual.plan.peak
    return usual, small


def test_a_chain_of_convolutions_needs_less_than_is_alive_at_once() -> None:
    _, small = checked(conv_chain([3, 16, 16, 16], 40))
    plan = small.plan
    classical = memory.lower_bound([t for t in plan.lifetimes if "@" not in t.name])  # without the kernels' own memory
    assert plan.peak < 0.75 * classical


@pytest.mark.parametrize("threads", [1, 2])
def test_slices_concatenations_pooling(threads: int) -> None:
    usual, small = checked(mixed(), threads)
    assert small.plan.peak < usual.plan.peak


def test_a_saved_model_runs_and_a_changed_plan_does_not(tmp_path: Path) -> None:
    _, small = checked(conv_chain([3, 16, 16, 16], 40))
    small.save(tmp_path / "m")
    again = polyc.load(tmp_path / "m")
    x = RNG.standard_normal((1, 3, 40, 40)).astype("f")
    np.testing.assert_array_equal(again({"x": x})["out"], small({"x": x})["out"])
    plan = small.plan
    assert Plan.from_json(plan.to_json()) == replace(plan, peaks=dict(plan.peaks))
    moved = 0
    for name, slot in plan.slots.items():
        if slot.place.kind != "arena":
            continue
        for offset in range(0, plan.peak - slot.nbytes + 1, 4096):
            changed = replace(slot, place=Place("arena", 0, offset))
            legal = _legal(replace(plan, slots={**plan.slots, name: changed}))
            moved += not legal
            assert legal or offset != slot.place.offset
    assert moved > 5


def _legal(plan: Plan[int]) -> bool:
    try:
        check_plan(plan, {s.symbol for s in plan.steps}, 0)
    except memory.PlanError:
        return False
    return True


def test_without_gaps_nothing_may_overlap() -> None:
    _, small = checked(conv_chain([3, 16, 16, 16], 40))
    with pytest.raises(memory.PlanError, match="overlap|over"):
        check_plan(replace(small.plan, gaps={}), {s.symbol for s in small.plan.steps}, 0)
    with pytest.raises(memory.PlanError, match="overlap|over"):
        check_plan(replace(small.plan, overlaps={}), {s.symbol for s in small.plan.steps}, 0)


def test_options_that_contradict_it() -> None:
    m = conv_chain([3, 4], 8)
    with pytest.raises(ArgumentError, match="no memory 'tiny'"):
        polyc.compile_model(m, memory="tiny")
    for other in ({"tasks": True}, {"planner": "exact"}, {"tier": "fast"}):
        with pytest.raises(OptionError, match="take one of them"):
            polyc.compile_model(m, memory="minimal", **other)


@pytest.mark.parametrize("target", ["aarch64", "x86-64-v4"])
def test_code_made_again_for_another_cpu_keeps_the_plan_or_says_why_not(target: str, tmp_path: Path) -> None:
    m = conv_chain([3, 16, 16], 24)
    polyc.compile_model(m, target=target, threads=1, memory="minimal").save(tmp_path / "m")
    x = RNG.standard_normal((1, 3, 24, 24)).astype("f")
    try:
        found = polyc.load(tmp_path / "m")
    except BuildError as error:
        assert "compile the model for it" in str(error)
        return
    assert differs(poisoned_run(found, {"x": x}), found({"x": x})) == []
    wanted = polyc.compile_model(m, threads=1)({"x": x})["out"]
    np.testing.assert_allclose(found({"x": x})["out"], wanted, rtol=2e-5, atol=2e-6)
