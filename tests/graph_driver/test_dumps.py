"""`polyc compile --stop-after` and `--dump-after`: graphs as files that every command reads."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from polyc.graph_driver.cli import main
from polyc.graph_driver.graph.exact_text import exact_graph
from polyc.graph_driver.importing.graph_files import read_graph, write_graph
from polyc.graph_driver.importing.importer import import_model
from polyc.poly.errors import ModelError

TARGETS = ("cpu", "c", "x86-64-v3", "aarch64", "cuda")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution with a scale to fold, a chain to fuse, and a constant to compute."""
    rng = np.random.default_rng(1)
    constants = [
        numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype("f"), "w"),
        numpy_helper.from_array(rng.standard_normal((1, 8, 1, 1)).astype("f"), "s"),
        numpy_helper.from_array(np.array([1, -1], np.int64), "shape"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["h", "s"], ["i"]),
        helper.make_node("Relu", ["i"], ["j"]),
        helper.make_node("Identity", ["j"], ["k"]),
        helper.make_node("Reshape", ["k", "shape"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def outputs(path: Path, *more: str) -> np.ndarray:
    saved = path.with_suffix(".out.npz")
    assert main(["run", str(path), "--save", str(saved), *more]) == 0
    return np.asarray(np.load(saved)["y"])


def test_the_front_end_is_the_same_for_every_target(model: Path, tmp_path: Path) -> None:
    written = []
    for target in TARGETS:
        file = tmp_path / f"{target}.graph"
        arguments = ["compile", str(model), "--stop-after", "frontend", "--emit", "graph", "--target", target]
        assert main([*arguments, "-o", str(file)]) == 0
        written.append((file.read_bytes(), file.with_name(f"{file.name}.npz").read_bytes()))
    assert all(w == written[0] for w in written)
    np.testing.assert_allclose(outputs(tmp_path / "cpu.graph"), outputs(model), rtol=1e-6, atol=1e-6)


def test_every_dump_of_a_graph_runs(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.polyc"
    assert main(["compile", str(model), "-o", str(out), "--dump-after", "all"]) == 0
    folder = tmp_path / "m.dumps"
    index = json.loads((folder / "index.json").read_text())
    stages = [d["stage"] for d in index]
    assert stages[0] == "import" and stages[-3:] == ["selection", "memory", "plan"] and "affine" in stages
    expected = outputs(model, "--exact", "--passes", "")
    for d in index:
        bound = 1e-6 if d["exact"] else 1e-4
        found = outputs(folder / d["file"], "--passes", "")
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)
    assert (out / "manifest.json").is_file() or any(out.iterdir())


def test_a_changed_dump_is_another_model(model: Path, tmp_path: Path) -> None:
    assert main(["compile", str(model), "--stop-after", "frontend", "-o", str(tmp_path / "m.graph")]) == 0
    text = (tmp_path / "m.graph").read_text()
    assert text.count("Relu") == 1
    (tmp_path / "m.graph").write_text(text.replace("Relu", "Neg"))
    found = outputs(tmp_path / "m.graph")
    assert found.min() < 0
    (tmp_path / "m.graph").write_text(text.replace("Relu", "Nonsense"))
    assert main(["run", str(tmp_path / "m.graph")]) == 1


def test_only_what_is_asked_for(model: Path, tmp_path: Path) -> None:
    asked = ["compile", str(model), "-o", str(tmp_path / "o.polyc"), "--dump-after", "affine,plan"]
    assert main(asked) == 0
    stages = {d["stage"] for d in json.loads((tmp_path / "o.dumps" / "index.json").read_text())}
    assert stages == {"affine", "plan"}


def test_arrays_of_all_types_come_back(tmp_path: Path) -> None:
    values = np.arange(200).reshape(10, 20)
    kinds = (np.float32, np.float16, np.int8, np.int64, np.bool_, ml_dtypes.bfloat16)
    constants = [numpy_helper.from_array(values.astype(k), f"c{n}") for n, k in enumerate(kinds)]
    nodes = [helper.make_node("Identity", [c.name], [f"y{n}"]) for n, c in enumerate(constants)]
    results = [helper.make_tensor_value_info(f"y{n}", c.data_type, [10, 20]) for n, c in enumerate(constants)]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [], results, constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    graph = import_model(proto, {}, {}, False, {})
    write_graph(graph, tmp_path / "g.graph")
    assert exact_graph(read_graph(tmp_path / "g.graph")) == exact_graph(graph)


def test_damaged_files_are_one_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "--stop-after", "graph", "-o", str(tmp_path / "m.graph")]) == 0
    beside = tmp_path / "m.graph.npz"
    beside.write_bytes(beside.read_bytes()[:-40])
    with pytest.raises(ModelError, match="damaged"):
        read_graph(tmp_path / "m.graph")
    beside.unlink()
    with pytest.raises(ModelError, match="of this shape and hash is given"):
        read_graph(tmp_path / "m.graph")
    capsys.readouterr()
    for arguments, words in (
        (["--emit", "graph"], "needs --stop-after"),
        (["--dump-after", "nonsense"], "not 'nonsense'"),
    ):
        assert main(["compile", str(model), *arguments]) == 2
        assert words in capsys.readouterr().err
    assert main(["run", str(tmp_path / "m.graph"), "--dim", "N=2"]) != 0
    assert "whose sizes and values are fixed" in capsys.readouterr().err
