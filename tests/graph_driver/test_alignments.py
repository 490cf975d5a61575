"""Where plans put tensors: multiples of a cache line on CPUs, of 256 bytes on GPUs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from polyc.graph_driver import memory
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.cli.models import formed_of, optimised, plan_of
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.verify_plan import check_plan


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of tensors of odd sizes, of which several are alive at once."""
    rng = np.random.default_rng(0)
    weights = {
        f"w{k}": rng.standard_normal((n, m)).astype("f") for k, (n, m) in enumerate(((33, 21), (21, 19), (33, 19)))
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]), helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["c"]), helper.make_node("MatMul", ["x", "w2"], ["d"]),
        helper.make_node("Softmax", ["d"], ["e"]), helper.make_node("Concat", ["c", "e"], ["f"], axis=0),
        helper.make_node("Softmax", ["f"], ["y"], axis=0),
    ]  # fmt: skip
    values = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [7, 33]), ("y", [14, 19]))]
    inits = [onnx.numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], inits)
    file = tmp_path_factory.mktemp("aligned") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def planned(path: Path, target: str) -> Plan[int]:
    options = CompileOptions(target=target)
    platform = platform_of(target, None)
    graph, _ = optimised(path, options, platform)
    groups, _ = formed_of(graph, platform, options)
    return plan_of(graph, groups, platform, options)


@pytest.mark.parametrize(("target", "bytes_"), [("x86-64-v3", 64), ("sm_80", 256), ("sm_90", 256)])
def test_every_offset(path: Path, target: str, bytes_: int) -> None:
    plan = planned(path, target)
    check_plan(plan, {s.symbol for s in plan.steps}, 0)
    places = {n: s.place.offset for n, s in plan.slots.items() if s.place.kind in ("arena", "weight")}
    assert len({o for o in places.values() if o}) >= 2
    assert all(o % bytes_ == 0 for n, o in places.items() if n not in plan.inside), places
    assert plan.alignment == bytes_ and Plan.from_json(plan.to_json()).alignment == bytes_


@pytest.mark.parametrize(("target", "bytes_"), [("x86-64-v3", 64), ("sm_80", 256)])
@pytest.mark.parametrize("columns", [16, 17, 48, 64, 192])
def test_parts_of_a_whole_and_of_a_split(tmp_path: Path, target: str, bytes_: int, columns: int) -> None:
    """They are made in place where they begin at multiples, and copied where they do not."""
    node = helper.make_node
    nodes = [
        node("Softmax", ["x"], ["a"]), node("Relu", ["x"], ["b"]), node("Sigmoid", ["x"], ["c"]),
        node("Concat", ["a", "b", "c"], ["all"], axis=0), node("CumSum", ["all", "axis"], ["sums"]),
        node("Split", ["sums"], ["s0", "s1", "s2"], axis=0), node("Softmax", ["s1"], ["t"]),
        node("Softmax", ["s2"], ["u"]), node("MatMul", ["t", "w"], ["v"]), node("Add", ["v", "u"], ["y"]),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(n, 1, [1, columns]) for n in "xy"]
    inits = [onnx.numpy_helper.from_array(np.ones((columns, columns), "f"), "w"),
             onnx.numpy_helper.from_array(np.array(0), "axis")]  # fmt: skip
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], inits)
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    plan = planned(file, target)
    check_plan(plan, {s.symbol for s in plan.steps}, 0)
    places = {n: s.place.offset for n, s in plan.slots.items() if s.place.kind in ("arena", "weight")}
    assert all(o % bytes_ == 0 for o in places.values()), places
    assert any(o for _, o in plan.inside.values()) == (columns * 4 % bytes_ == 0)


@pytest.mark.parametrize("planner", [*memory.PLANNERS, None])
@pytest.mark.parametrize("alignment", [64, 256, 1024])
def test_planners_keep_any_alignment(planner: str | None, alignment: int) -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        firsts = rng.integers(0, 9, 10)
        tensors = [memory.Lifetime(f"t{k}", int(n), int(f), int(f + rng.integers(0, 4)))
                   for k, (n, f) in enumerate(zip(rng.integers(1, 5000, 10), firsts))]  # fmt: skip
        found = memory.plan_arena(tensors, planner, alignment).placement
        assert all(o % alignment == 0 for o in found.offsets.values())
        memory.check_placement(tensors, found, alignment)
