"""Whole models: both modes against the reference, memory, saving, loading, looking inside."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tiny_models import model_of, network, with_host_steps

import polyc
from polyc.graph_driver import memory
from polyc.graph_driver.checking.check import compare, random_input
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.fusion import groups
from polyc.graph_driver.graph.aliases import RESHAPING
from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.passes import manager
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.verify_plan import check_plan
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError, BuildError, ModelError


def feeds_of(model: Model, seed: int = 1) -> dict[str, np.ndarray]:
    return {n: random_input(n, d, s, seed) for n, (d, s) in model.inputs.items()}


def expected(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def agrees(proto: onnx.ModelProto, model: Model, tolerance: float = 1e-5) -> None:
    feeds = feeds_of(model)
    theirs = expected(proto, feeds)
    model.executor().arena[:] = 0xFF  # NaN in f32: nothing may depend on what memory held before
    for ours in (model(feeds), model.eager(feeds)):
        worst = max(d.relative for d in compare(ours, theirs))
        assert worst <= tolerance


@pytest.fixture(scope="module")
def net() -> tuple[onnx.ModelProto, Model]:
    proto = network()
    return proto, compile_model(proto, threads=1, dims={"N": 2})


def test_both_modes_agree_with_onnxruntime(net: tuple[onnx.ModelProto, Model]) -> None:
    agrees(*net)


def test_kernels_are_fused_and_none_is_on_the_host(net: tuple[onnx.ModelProto, Model]) -> None:
    labels = [s.label for s in net[1].plan.steps]
    assert labels == ["Conv+Relu", "Conv+Sigmoid+Mul+Add", "GlobalAveragePool", "Gemm", "Softmax"]
    report = net[1].report()
    assert report.host == [] and report.kernels == 5 and report.bound <= report.peak
    assert set(report.seconds) >= {"import", "passes", "plan", "program"}
    assert "no operators" in str(report)


def test_without_fusion_every_node_is_a_kernel() -> None:
    proto = network()
    model = compile_model(proto, threads=2, fuse=False)
    assert [s.label for s in model.plan.steps] == [
        "Conv", "Relu", "Conv", "Sigmoid", "Mul", "Add", "GlobalAveragePool", "Gemm", "Softmax"
    ]  # fmt: skip
    agrees(proto, model)


def test_the_whole_graph_as_one_program_beside_its_nodes_one_at_a_time() -> None:
    """Eager mode as a framework has it: its calls and its peak are those of a program without fusion."""
    proto = network()
    graph, eager = (
        compile_model(proto, threads=1, dims={"N": 2}, **how) for how in ({}, {"fuse": False, "passes": []})
    )
    calls, peak = graph.report().eager_launches, graph.report().eager_peak
    assert (calls, peak) == (sum(s.label not in RESHAPING for s in eager.plan.steps), eager.plan.bound)
    assert len(graph.plan.steps) < calls and graph.plan.peak < peak
    feeds = feeds_of(graph, 5)
    for name, value in eager.run(feeds, "eager").items():
        np.testing.assert_allclose(graph(feeds)[name], value, rtol=1e-4, atol=1e-6)
    (line,) = [line for line in str(graph.report()).splitlines() if line.startswith("launches")]
    assert line == (
        f"launches 5, peak {human(graph.plan.peak)}; one node at a time it would be {calls} launches, {human(peak)}"
    )


def test_results_do_not_change_with_later_runs(net: tuple[onnx.ModelProto, Model]) -> None:
    model = net[1]
    first_in, second_in = feeds_of(model, 1), feeds_of(model, 2)
    first = model(first_in)["y"]
    kept = first.copy()
    second = model(second_in)["y"]
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, kept)


def test_the_plan_is_sound_small_and_survives_json(net: tuple[onnx.ModelProto, Model]) -> None:
    plan = net[1].plan
    symbols = {s.symbol for s in plan.steps}
    check_plan(plan, symbols, 0)
    again = Plan.from_json(plan.to_json())
    assert again.to_json() == plan.to_json() and again == plan
    assert plan.peak >= memory.lower_bound(plan.lifetimes)
    assert {s.place.kind for s in plan.slots.values()} == {"input", "weight", "arena", "output"}
    assert all(s.place.offset % 64 == 0 for s in plan.slots.values())


def test_host_steps_are_counted_named_and_right() -> None:
    proto = with_host_steps()
    model = compile_model(proto, threads=1)
    assert [(o, n) for o, n, _ in model.report().host] == [("NonZero", "nonzero"), ("Transpose", "pairs")]
    assert all("run time" in reason for _, _, reason in model.report().host)
    agrees(proto, model)


def test_functions_of_the_standard_run_on_the_host_too() -> None:
    """GroupNormalization is defined by a function body that depends on the types of its inputs."""
    rng = np.random.default_rng(4)
    w = {"s": rng.standard_normal(4).astype(np.float32), "b": rng.standard_normal(4).astype(np.float32)}
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    model = compile_model(model_of([node], {"x": [2, 4, 3]}, {"y": [2, 4, 3]}, w, opset=21), threads=1)
    x = feeds_of(model)["x"]
    parts = x.astype(np.float64).reshape(2, 2, 6)
    normal = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    expect = normal.reshape(2, 4, 3) * w["s"][:, None] + w["b"][:, None]
    np.testing.assert_allclose(model({"x": x})["y"], expect, rtol=1e-4, atol=1e-5)


def test_control_flow_is_a_step_with_captured_tensors() -> None:
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, [3])
    branches = {
        f"{k}_branch": helper.make_graph([helper.make_node(op, ["r"], ["o"])], k, [], [out])
        for k, op in {"then": "Exp", "else": "Neg"}.items()
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("ReduceSum", ["x"], ["total"], "total", keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["c"], "positive"),
        helper.make_node("If", ["c"], ["b"], "choice", **branches),
        helper.make_node("Add", ["b", "r"], ["y"], "plus"),
    ]
    proto = model_of(nodes, {"x": [3]}, {"y": [3]}, {"zero": np.zeros((), np.float32)})
    model = compile_model(proto, threads=1)
    assert not model.report().host and [s.kind for s in model.plan.python_steps] == ["control"]
    for seed in range(6):
        feeds = feeds_of(model, seed)
        np.testing.assert_allclose(model(feeds)["y"], expected(proto, feeds)["y"], rtol=1e-6)


def test_outputs_that_are_inputs_constants_views_or_twice_the_same() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["w"], ["fixed"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["flat"]),
        helper.make_node("Identity", ["r"], ["again"]),
    ]
    w = np.arange(4, dtype=np.float32)
    proto = model_of(
        nodes, {"x": [2, 3]}, {"same": [2, 3], "fixed": [4], "r": [2, 3], "flat": [6], "again": [2, 3]},
        {"w": w, "shape": np.array([6], np.int64)},
    )  # fmt: skip
    model = compile_model(proto, threads=1)
    agrees(proto, model, 0.0)
    out = model(feeds_of(model))
    assert not any(np.shares_memory(out["r"], out[n]) for n in ("same", "flat", "again"))


def test_grouped_transposed_convolution_with_a_folded_scale() -> None:
    rng = np.random.default_rng(0)
    w, k = rng.standard_normal((4, 3, 3, 3)).astype(np.float32), rng.standard_normal((6, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["c"], group=2), helper.make_node("Mul", ["c", "k"], ["y"])]
    proto = model_of(nodes, {"x": [1, 4, 5, 4]}, {"y": [1, 6, 7, 6]}, {"w": w, "k": k})
    model = compile_model(proto, threads=1)
    assert len(model.plan.steps) == 1
    agrees(proto, model)


@pytest.mark.parametrize("group", [1, 2, 4])
def test_epilogues_over_the_librarys_stored_shapes(group: int) -> None:
    """1x1, grouped and depthwise convolutions store their result in other shapes than [N, C, H, W]."""
    rng = np.random.default_rng(group)
    w = rng.standard_normal((4, 4 // group, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], group=group),
        helper.make_node("Mul", ["c", "k"], ["m"]),
        helper.make_node("HardSwish", ["m"], ["h"]),
        helper.make_node("Add", ["h", "x"], ["y"]),
    ]
    k = rng.standard_normal((1, 1, 1, 5)).astype(np.float32)
    proto = model_of(nodes, {"x": [2, 4, 3, 5]}, {"y": [2, 4, 3, 5]}, {"w": w, "k": k})
    agrees(proto, compile_model(proto, threads=1))


def test_equal_groups_are_compiled_once() -> None:
    w = {f"w{k}": np.random.default_rng(k).standard_normal((4, 4, 3, 3)).astype(np.float32) for k in range(3)}
    nodes, last = [], "x"
    for k in range(3):
        nodes += [
            helper.make_node("Conv", [last, f"w{k}"], [f"c{k}"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{k}"], [f"r{k}"]),
        ]
        last = f"r{k}"
    proto = model_of(nodes, {"x": [1, 4, 6, 6]}, {last: [1, 4, 6, 6]}, w)
    model = compile_model(proto, threads=1)
    assert model.report().kernels == 3 and model.report().distinct == 1
    agrees(proto, model)


def test_groups_never_leave_a_value_that_others_need() -> None:
    graph = import_model(network(), dims={"N": 1})
    manager.run(graph)
    found = groups.form_groups(graph, groups.translate(graph, lookup))
    assert sorted(n.name for g in found for n in g.nodes) == sorted(n.name for n in graph.nodes if n.domain != "polyc")
    for g in found:
        inside = {o for n in g.nodes for o in n.writes()} - set(g.outputs)
        readers = [n for n in graph.nodes if not any(n is m for m in g.nodes)]
        assert not inside & {i for n in readers for i in n.reads()} and not inside & set(graph.outputs)


def test_any_tensor_can_be_looked_at(net: tuple[onnx.ModelProto, Model]) -> None:
    proto, model = net
    names = ["r1", "c2", "s2", "a2", "p", "flat", "g", "x", "y"]
    exposed = onnx.ModelProto()
    exposed.CopyFrom(proto)
    for n in names:
        if n not in ("x", "y"):
            exposed.graph.output.append(onnx.ValueInfoProto(name=n))
    feeds = feeds_of(model)
    theirs = expected(exposed, feeds) | {"x": feeds["x"]}
    ours = model.inspect(feeds, names)
    for n in names:
        np.testing.assert_allclose(ours[n], theirs[n], rtol=1e-4, atol=1e-5, err_msg=n)
    with pytest.raises(ModelError, match="no tensor 'nothing'"):
        model.inspect(feeds, ["nothing"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": None}, "input 'x' is missing"),
        ({"z": np.zeros(3)}, "no input 'z'"),
        ({"x": np.zeros((2, 3, 10, 12))}, "dtype float64"),
        ({"x": np.zeros((2, 3, 10, 11), np.float32)}, "shape"),
    ],
)
def test_wrong_inputs(net: tuple[onnx.ModelProto, Model], change: dict[str, Any], words: str) -> None:
    feeds = {k: v for k, v in (feeds_of(net[1]) | change).items() if v is not None}
    with pytest.raises(ArgumentError, match=words):
        net[1](feeds)


def test_inputs_may_be_strided(net: tuple[onnx.ModelProto, Model]) -> None:
    x = feeds_of(net[1])["x"]
    odd = np.asfortranarray(x)
    np.testing.assert_array_equal(net[1]({"x": odd})["y"], net[1]({"x": x})["y"])


def test_memory_limit() -> None:
    with pytest.raises(ModelError, match="memory limit"):
        compile_model(network(), threads=1, dims={"N": 2}, memory_limit=100)


def test_a_model_larger_than_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.graph_driver.graph import limits

    monkeypatch.setattr(limits, "physical_memory", lambda: 2000)
    with pytest.raises(ModelError, match="this machine has 2.00 kB"):
        compile_model(network(), threads=1, dims={"N": 2})


def test_unknown_target() -> None:
    with pytest.raises(BuildError, match="unknown target 'abacus'"):
        compile_model(network(), target="abacus")


# ---- compiled directories ---------------------------------------------------------------------


def test_a_directory_reloads_in_a_new_process_without_onnx(net: tuple[onnx.ModelProto, Model], tmp_path: Path) -> None:
    model = net[1]
    folder = tmp_path / "net"
    model.save(folder)
    feeds = feeds_of(model)
    np.save(tmp_path / "x.npy", feeds["x"])
    code = (
        "import sys, numpy as np; sys.modules['onnx'] = None; import polyc;"
        "m = polyc.load(sys.argv[1]); np.save(sys.argv[3], m({'x': np.load(sys.argv[2])})['y'])"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")], check=True
    )
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model(feeds)["y"])


def test_saving_is_deterministic_and_replaces_only_its_own_kind(
    net: tuple[onnx.ModelProto, Model], tmp_path: Path
) -> None:
    model = net[1]
    for name in ("a", "b", "b"):
        model.save(tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(BuildError, match="no compiled model"):
        model.save(tmp_path / "mine")
    with pytest.raises(BuildError, match="it is a file"):
        model.save(tmp_path / "mine" / "thesis.txt")
    with pytest.raises(BuildError, match="cannot write"):
        model.save(Path("/proc/none/here"))


def test_host_steps_reload(tmp_path: Path) -> None:
    proto = with_host_steps()
    compile_model(proto, threads=1).save(tmp_path / "h")
    agrees(proto, polyc.load(tmp_path / "h"))


def rewritten(folder: Path, change: dict[str, Any]) -> None:
    """Change manifest entries and make its checksum right again: only the contents can betray it."""
    import hashlib

    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    data.pop("checksum")
    data |= change
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps(data | {"checksum": hashlib.sha256(text.encode()).hexdigest()}))


def test_damaged_directories_are_refused(net: tuple[onnx.ModelProto, Model], tmp_path: Path) -> None:
    folder = tmp_path / "m"
    net[1].save(folder)
    pristine = {p.name: p.read_bytes() for p in folder.iterdir()}
    target = json.loads(pristine["manifest.json"])["target"]
    rng = np.random.default_rng(0)

    def refused() -> str:
        with pytest.raises(BuildError) as caught:
            polyc.load(folder)
        for name, data in pristine.items():
            (folder / name).write_bytes(data)
        text = str(caught.value)
        assert "\n" not in text
        return text

    for name in ("manifest.json", "weights.bin", "code.bin"):
        for _ in range(6):
            data = bytearray(pristine[name])
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
            (folder / name).write_bytes(bytes(data))
            assert "damaged" in refused() or name == "manifest.json"
        (folder / name).write_bytes(pristine[name][:-3])
        refused()
        (folder / name).unlink()
        refused()
    for change, words in {
        "format": ({"format": 99}, "format 99"),
        "target": ({"target": target | {"vector_bits": "wide"}}, "damaged"),
        "plan": ({"plan": {}}, "damaged"),
        "symbols": ({"symbols": ["../../etc/passwd"]}, "damaged"),
        "files": ({"files": {}}, "damaged"),
    }.values():
        rewritten(folder, change)
        assert words in refused()
    assert "y" in polyc.load(folder)(feeds_of(net[1]))
    rewritten(folder, {"target": target | {"features": target["features"] + ",+quantum"}})
    assert "lacks quantum: its kernels were compiled again" in polyc.load(folder).report().notes[-1]
    with pytest.raises(BuildError, match="cannot load"):
        polyc.load(tmp_path / "nothing")


def test_models_pickle() -> None:
    """As the files of a compiled directory; what cannot be saved says so."""
    for proto in (network(), with_host_steps()):
        model = compile_model(proto)
        x = np.random.default_rng(0).standard_normal(model.inputs["x"][1]).astype(np.float32)
        copied = pickle.loads(pickle.dumps(model))
        for name, value in model({"x": x}).items():
            np.testing.assert_array_equal(copied({"x": x})[name], value)
        assert copied.name == model.name and copy.deepcopy(model) is model
