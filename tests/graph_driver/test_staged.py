"""Dumps of kernels, memory and plan: taken back they give the same bits, changed ones what they say or one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from test_random_graphs import grown

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.cli import main
from polyc.graph_driver.compiling.from_source import compile_staged
from polyc.graph_driver.options import CompileOptions
from polyc.poly.errors import ModelError

Changing = Callable[[dict[str, Any]], None]


def dumped(folder: Path, model: onnx.ModelProto, *more: str) -> dict[str, Path]:
    """Files of the three stages by name."""
    path = folder / "m.onnx"
    onnx.save(model, path)
    asked = ["compile", str(path), "-o", str(folder / "m.polyc"), "--dump-after", "selection,memory,plan"]
    assert main([*asked, "--threads", "1", *more]) == 0
    index = json.loads((folder / "m.dumps" / "index.json").read_text())
    assert [d["stage"] for d in index] == ["selection", "memory", "plan"]
    return {d["stage"]: folder / "m.dumps" / d["file"] for d in index}


def ran(path: Path, feeds: dict[str, np.ndarray], target: str = "cpu") -> dict[str, np.ndarray]:
    return dict(compile_staged(path, platform_of(target, 1), CompileOptions(target, threads=1))(feeds))


def changed(path: Path, change: Changing) -> Path:
    data = json.loads(path.read_text())
    change(data)
    other = path.with_name(f"changed-{path.name}")
    other.write_text(json.dumps(data))
    return other


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def spread(data: dict[str, Any]) -> None:
    """Each memory alone, in another order."""
    at = 0
    for entry in reversed(data["memory"]):
        entry["at"] = at
        at += -(-entry["bytes"] // 64) * 64


def test_random_graphs_come_back_and_may_be_changed(tmp_path: Path) -> None:
    """Memory moved: the same bits. Two steps swapped: the same bits, or one line. Two memories that are alive together
    in one place: one line. Kernels without their code: what their nodes say."""
    swapped = refused = collided = 0
    for seed in range(300, 304):
        model, feeds = grown(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        files = dumped(folder, model)
        expected = ran(files["selection"], feeds)
        for stage in ("memory", "plan"):
            same(ran(files[stage], feeds), expected)
            same(ran(changed(files[stage], spread), feeds), expected)
        steps = json.loads(files["plan"].read_text())["steps"]
        for k in range(len(steps) - 1):

            def swap(data: dict[str, Any], k: int = k) -> None:
                spread(data)
                data["steps"][k : k + 2] = reversed(data["steps"][k : k + 2])

            try:
                same(ran(changed(files["plan"], swap), feeds), expected)
                swapped += 1
            except ModelError as error:
                assert "reads" in str(error) or "before" in str(error), error
                refused += 1
        entries = json.loads(files["memory"].read_text())["memory"]
        for a, b in zip(entries, entries[1:]):
            if max(a["steps"][0], b["steps"][0]) <= min(a["steps"][1], b["steps"][1]):

                def collide(data: dict[str, Any], a: str = a["memory"], b: str = b["memory"]) -> None:
                    spread(data)
                    by_name = {e["memory"]: e for e in data["memory"]}
                    by_name[a]["at"] = by_name[b]["at"]

                with pytest.raises(ModelError, match="overlap|over|outside"):
                    ran(changed(files["memory"], collide), feeds)
                collided += 1

        def plain(data: dict[str, Any]) -> None:
            data["kernels"] = [
                {"nodes": [n], "reads": [], "writes": []} for k in data["kernels"] for n in k["nodes"]
            ]  # fmt: skip

        for name, value in ran(changed(files["selection"], plain), feeds).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-4 * np.abs(value).max())
    assert swapped and refused and collided, (swapped, refused, collided)


def small() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Softmax", ["r"], ["y"], name="soft", axis=-1),
    ]
    weights = [numpy_helper.from_array(rng.standard_normal((13, 11)).astype("f"), "w")]
    x, y = helper.make_tensor_value_info("x", 1, [7, 13]), helper.make_tensor_value_info("y", 1, [7, 11])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": rng.standard_normal((7, 13)).astype("f")}


def test_what_a_file_says_is_what_runs(tmp_path: Path) -> None:
    """A node on the host, code that computes something else, another target, and a dump of a dump's results."""
    model, feeds = small()
    files = dumped(tmp_path, model)
    expected = ran(files["plan"], feeds)["y"]
    np.testing.assert_array_equal(ran(files["selection"], feeds, "c")["y"], ran(files["plan"], feeds, "c")["y"])

    def on_the_host(data: dict[str, Any]) -> None:
        old = data["kernels"][-1]
        data["kernels"][-1:] = [{"host": "as asked", "nodes": ["soft"], "reads": ["r"], "writes": ["y"]}]
        if "soft" in old["nodes"] and len(old["nodes"]) > 1:
            data["kernels"][-1:-1] = [{"nodes": [n], "reads": [], "writes": []} for n in old["nodes"] if n != "soft"]

    path = changed(files["selection"], on_the_host)
    model_on_host = compile_staged(path, platform_of("cpu", 1), CompileOptions(threads=1))
    assert [(s.kind, s.reason) for s in model_on_host.plan.steps][-1] == ("host", "as asked")
    np.testing.assert_allclose(model_on_host(feeds)["y"], expected, rtol=1e-5, atol=1e-6)

    text = files["selection"].read_text()
    assert text.count("exp(") >= 1
    other = files["selection"].with_name("other.stage")
    other.write_text(text.replace("exp(", "tanh("))
    assert not np.allclose(ran(other, feeds)["y"], expected)
    saved = tmp_path / "out.npz"
    assert main(["run", str(files["plan"]), "--save", str(saved)]) == 0
    assert main(["compile", str(files["plan"]), "-o", str(tmp_path / "again.polyc")]) == 0


@pytest.mark.parametrize(
    ("stage", "change", "words"),
    [
        ("selection", lambda d: d.update(stage="nonsense"), "there is no stage 'nonsense'"),
        ("selection", lambda d: d["kernels"].pop(), "no kernel makes the result 'y'"),
        ("selection", lambda d: d["kernels"].append(d["kernels"][-1]), "which another one has made"),
        ("selection", lambda d: d["kernels"][0].update(nodes=["nobody"]), "there is no node 'nobody'"),
        ("selection", lambda d: d["kernels"][0].update(code="k9"), "there is no code 'k9'"),
        ("selection", lambda d: d["kernels"][0].update(reads=["y", "x"]), "its tensor"),
        ("selection", lambda d: d["code"].update(k0=["scop nonsense"]), "line 1"),
        ("selection", lambda d: d["kernels"][0].pop("nodes"), "an entry is missing"),
        ("memory", lambda d: d["memory"].append({"memory": "nobody", "at": 0}), "there is no memory 'nobody'"),
        ("memory", lambda d: d["memory"].clear(), "has no place in the arena"),
        ("memory", lambda d: d["memory"][0].update(at=-64), "outside|does not fit"),
        ("memory", lambda d: d["memory"][0].update(at=3), "outside|misaligned|fit"),
        ("plan", lambda d: d["steps"].pop(), "no step makes"),
        ("plan", lambda d: d["steps"].append(d["steps"][0]), "a second time"),
    ],
)
def test_what_cannot_run_is_one_line(tmp_path: Path, stage: str, change: Changing, words: str) -> None:
    model, feeds = small()
    files = dumped(tmp_path, model, "--keep-op-borders")
    with pytest.raises(ModelError, match=words) as caught:
        ran(changed(files[stage], change), feeds)
    assert "\n" not in str(caught.value)


def test_sizes_that_stay_symbolic(tmp_path: Path) -> None:
    """Kernels of all sizes come back; memory and plan are formulas, and texts for reading."""
    rng = np.random.default_rng(6)
    model, _ = small()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    assert main(["compile", str(path), "-o", str(tmp_path / "m.polyc"), "--dump-after", "all"]) == 0
    found = {d["stage"]: d for d in json.loads((tmp_path / "m.dumps" / "index.json").read_text())}
    assert [found[s]["file"].partition(".")[2] for s in ("selection", "memory", "plan")] == ["stage", "txt", "txt"]
    file = tmp_path / "m.dumps" / found["selection"]["file"]
    staged = compile_staged(file, platform_of("cpu", 1), CompileOptions(threads=1))
    for rows in (1, 7, 64):
        x = rng.standard_normal((rows, 13)).astype("f")
        h = np.maximum(x @ numpy_helper.to_array(model.graph.initializer[0]), 0)
        e = np.exp(h - h.max(-1, keepdims=True))
        np.testing.assert_allclose(staged({"x": x})["y"], e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-5)
