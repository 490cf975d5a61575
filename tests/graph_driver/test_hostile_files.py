"""Files made to harm: each ends in one clear line (or runs), without gigabytes of memory, a hang or another's files."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mutations
import numpy as np
import onnx
import pytest
from mutated.inputs import Kind, Trial
from onnx import TensorProto, helper
from seed_pages import Run
from tiny_models import F, model_of, network

import polyc
from polyc.graph_driver import cli
from polyc.poly.errors import ModelError

I64 = TensorProto.INT64


def node(op: str, inputs: list[str], output: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], **attrs)


def single(op: str, operands: dict[str, Any], given: tuple[str, ...] = (), **attrs: Any) -> onnx.ModelProto:
    """One node over `x` and constants; those named in `given` are inputs of a run."""
    weights = {n: v for n, v in operands.items() if n not in given and n != "x"}
    inputs = {"x": list(operands["x"].shape)} if "x" in operands else {}
    inputs |= {n: (I64, list(operands[n].shape)) for n in given}
    return model_of([node(op, list(operands), "y", **attrs)], inputs, {"y": None}, weights, opset=18)


X = np.ones((2, 3), np.float32)
IMAGE = np.ones((1, 1, 4, 4), np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def doubling(op: str, times: int) -> onnx.ModelProto:
    """A chain in which each node makes twice as much."""
    nodes = [node("Concat", [f"t{k}", f"t{k}"], f"t{k + 1}", axis=0) for k in range(times)]
    if op == "Tile":
        nodes = [node("Tile", [f"t{k}", "two"], f"t{k + 1}") for k in range(times)]
    return model_of(nodes, {"t0": [4]}, {f"t{times}": None}, {"two": ints(2)} if op == "Tile" else {})


def looped(count: int | None, known: bool) -> onnx.ModelProto:
    """A loop that doubles a value. (Loops that do not end are programs that do not end: Ctrl-C ends them.)"""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["c"], "c2"), node("Concat", ["v", "v"], "w", axis=0)], "body",
        [info("i", I64, []), info("c", TensorProto.BOOL, []), info("v", F, None)],
        [info("c2", TensorProto.BOOL, []), info("w", F, None)],
    )  # fmt: skip
    weights: dict[str, Any] = {"yes": np.array(True)}
    inputs: dict[str, Any] = {"x": [4]}
    if known and count is not None:
        weights["count"] = np.array(count)
    nodes = [helper.make_node("Loop", ["count" if count is not None else "", "yes", "x"], ["y"], body=body)]
    return model_of(nodes, inputs, {"y": None}, weights)


def nested(depth: int, known: bool) -> onnx.ModelProto:
    """`If` within `If` within `If`."""
    info = helper.make_tensor_value_info
    inner = node("Neg", ["x"], "r0")
    for k in range(depth):
        graph = helper.make_graph([inner], f"g{k}", [], [info(f"r{k}", F, None)])
        inner = node("If", ["c"], f"r{k + 1}", then_branch=graph, else_branch=graph if k < 3 else _short(k))
    weights = {"c": np.array(True)} if known else {}
    inputs: dict[str, Any] = {"x": [4]} if known else {"x": [4], "c": (TensorProto.BOOL, [])}
    return model_of([inner], inputs, {f"r{depth}": None}, weights)


def _short(k: int) -> onnx.GraphProto:
    return helper.make_graph([node("Abs", ["x"], f"e{k}")], "e", [], [helper.make_tensor_value_info(f"e{k}", F, None)])


def calling_itself() -> onnx.ModelProto:
    """A function that calls itself; two that call each other."""
    ops = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    a = helper.make_function("own", "a", ["x"], ["y"], [helper.make_node("b", ["x"], ["y"], domain="own")], ops)
    b = helper.make_function("own", "b", ["x"], ["y"], [helper.make_node("a", ["x"], ["y"], domain="own")], ops)
    model = model_of([helper.make_node("a", ["x"], ["y"], domain="own")], {"x": [4]}, {"y": None}, {}, opset=18)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend([a, b])
    return model


def many_calls(levels: int) -> onnx.ModelProto:
    """Functions each of which calls the next one ten times: a bomb of 10 ** levels nodes."""
    ops = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = []
    for k in range(levels):
        inner = "Neg" if k == 0 else f"f{k - 1}"
        nodes = [helper.make_node(inner, [f"t{j}"], [f"t{j + 1}"], domain="own" if k else "") for j in range(10)]
        functions.append(helper.make_function("own", f"f{k}", ["t0"], ["t10"], nodes, ops))
    call = helper.make_node(f"f{levels - 1}", ["x"], ["y"], domain="own")
    model = model_of([call], {"x": [4]}, {"y": None}, {}, opset=18)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(functions)
    return model


def sized(*dims: int) -> onnx.ModelProto:
    return model_of([node("Relu", ["x"], "y")], {"x": list(dims)}, {"y": None}, {})


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "input 2**40 x 2**40": lambda: sized(2**40, 2**40),
    "input 2**62": lambda: sized(2**62),
    "input 2**33": lambda: sized(2**33),
    "negative input": lambda: sized(-5, 3),
    "ConstantOfShape 2**60": lambda: single("ConstantOfShape", {"s": ints(2**60)}),
    "ConstantOfShape 2**40 x 2**40": lambda: single("ConstantOfShape", {"s": ints(2**40, 2**40)}),
    "ConstantOfShape negative": lambda: single("ConstantOfShape", {"s": ints(-2**60)}),
    "ConstantOfShape 2**32": lambda: single("ConstantOfShape", {"s": ints(2**32)}),
    "Expand": lambda: single("Expand", {"x": X[:1, :1], "s": ints(2**31, 2**31)}),
    "Tile": lambda: single("Tile", {"x": X, "s": ints(2**31, 2**31)}),
    "Tile overflows": lambda: single("Tile", {"x": X, "s": ints(2**62, 4)}),
    "Pad": lambda: single("Pad", {"x": X, "s": ints(2**40, 0, 2**40, 0)}),
    "Pad negative": lambda: single("Pad", {"x": X, "s": ints(-(2**40), 0, 0, 0)}),
    "Resize": lambda: single("Resize", {"x": X, "": X, "s": np.array([1e12, 1e12], np.float32)}),
    "Resize nan": lambda: single("Resize", {"x": X, "": X, "s": np.array([np.nan, 1], np.float32)}),
    "Resize sizes": lambda: single("Resize", {"x": X, "": X, " ": X, "s": ints(2**40, 2**40)}),
    "Range": lambda: single("Range", {"a": np.array(0), "b": np.array(2**60), "c": np.array(1)}),
    "Range of step 0": lambda: single("Range", {"a": np.array(0), "b": np.array(9), "c": np.array(0)}),
    "OneHot": lambda: single("OneHot", {"x": X, "d": np.array(2**50), "v": np.array([0, 1], np.float32)}),
    "EyeLike": lambda: model_of([node("EyeLike", ["x"], "y")], {"x": [2**20, 2**20]}, {"y": None}, {}),
    "Reshape overflows": lambda: single("Reshape", {"x": X, "s": ints(2**32, 2**32, -1)}),
    "doubled 60 times": lambda: doubling("Concat", 60),
    "tiled 60 times": lambda: doubling("Tile", 60),
    "doubled 32 times": lambda: doubling("Concat", 32),
    "loop of 40 that doubles": lambda: looped(40, True),
    "loop without end": lambda: looped(None, True),
    "nested 15": lambda: nested(15, True),
    "nested 28": lambda: nested(28, True),
    "nested 28 at run time": lambda: nested(28, False),
    "functions that call each other": calling_itself,
    "a bomb of functions": lambda: many_calls(9),
    "windows of 2**31": lambda: single("MaxPool", {"x": IMAGE}, kernel_shape=[2**31, 2**31]),
    "pads of 2**40": lambda: single("MaxPool", {"x": IMAGE}, kernel_shape=[1, 1], pads=[2**40] * 4),
    "sparse": lambda: _sparse(),
    "dft": lambda: single("DFT", {"x": np.ones((1, 8, 1), np.float32), "n": np.array(2**50)}, axis=1),
    "BlackmanWindow": lambda: single("BlackmanWindow", {"n": np.array(2**50)}),
    "a name with escapes": lambda: _named("\x1b[31mred\x1b[0m\nnext\x07"),
    "random of 2**50": lambda: model_of([node("RandomNormal", [], "y", shape=[2**50])], {}, {"y": None}, {}),
    "Upsample": lambda: model_of([node("Upsample", ["x", "s"], "y")], {"x": [1, 1, 2, 2]}, {"y": None},
                                 {"s": np.array([1, 1, 1e9, 1e9], np.float32)}, opset=9),
    "Split into 2**40": lambda: single("Split", {"x": X}, num_outputs=2**40),
    "einsum": lambda: single("Einsum", {"x": X}, equation="ij->" + "ij" * 40),
    "CenterCropPad": lambda: single("CenterCropPad", {"x": X, "s": ints(2**40, 2**40)}),
    "GridSample": lambda: model_of([node("GridSample", ["x", "g"], "y")],
                                   {"x": [1, 1, 2, 2], "g": [1, 2**20, 2**20, 2]}, {"y": None}, {}),
}  # fmt: skip


def _named(name: str) -> onnx.ModelProto:
    model = sized(3)
    model.graph.node[0].name = name
    model.graph.node[0].op_type = "Softplux"
    return model


def _sparse() -> onnx.ModelProto:
    model = model_of([node("Relu", ["w"], "y")], {}, {"y": None}, {})
    values = helper.make_tensor("w", F, [1], [1.0])
    indices = helper.make_tensor("i", I64, [1], [2**39])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**40, 2**40]))
    return model


def test_models_that_claim_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))
    names = list(CASES)
    for k, make in enumerate(CASES.values()):
        (tmp_path / f"{k}.onnx").write_bytes(make().SerializeToString())

    def command(k: int) -> int:
        return cli.main(["run", str(tmp_path / f"{k}.onnx"), "--threads", "1"])

    kind = Kind("claims", lambda folder: None, lambda valid, folder, k: Trial(names[k], partial(command, k)))
    monkeypatch.setitem(mutations.KINDS, "claims", kind)
    block, failures = mutations.run(Run(range(len(names)), "claims"), tmp_path)
    assert failures == [] and block.counts[0] < 15


# ---- files beside the model ----------------------------------------------------------------------


def external(folder: Path, location: str, **entries: str) -> Path:
    """A model whose weights lie in a file of their own."""
    model = model_of([node("Add", ["x", "w"], "y")], {"x": [4]}, {"y": [4]}, {"w": np.ones(4, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_stays_in_the_folder_of_the_model(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "secret.bin"
    (inside / "deep").mkdir(parents=True)
    outside.write_bytes(np.full(4, 7, np.float32).tobytes())
    (inside / "w.bin").write_bytes(np.full(4, 2, np.float32).tobytes())
    (inside / "link.bin").symlink_to(outside)
    (inside / "own.bin").symlink_to(inside / "w.bin")
    (inside / "out").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    x = {"x": np.zeros(4, np.float32)}
    for location in ("w.bin", "deep/../w.bin", "./w.bin", "own.bin"):
        assert polyc.compile_model(external(inside, location), threads=1)(x)["y"].tolist() == [2.0] * 4
    wrong = {
        "../secret.bin": "outside", str(outside): "outside", "link.bin": "outside", "out/secret.bin": "outside",
        "deep/../../secret.bin": "outside", "/etc/hostname": "outside", "": "without a location",
        "none.bin": "cannot open",
        "deep": "no ordinary file", "pipe": "no ordinary file", "a\0b": "NUL", ".": "outside",
    }  # fmt: skip
    for location, message in wrong.items():
        with pytest.raises(ModelError, match=message) as error:
            polyc.compile_model(external(inside, location))
        assert str(error.value).isprintable()
    for entries in ({"offset": "4"}, {"offset": str(2**62)}, {"offset": "-4"}, {"length": "8"}, {"length": str(2**62)},
                    {"offset": "x"}, {"offset": "9" * 5000}):  # fmt: skip
        with pytest.raises(ModelError) as error:
            polyc.compile_model(external(inside, "w.bin", **entries))
        assert str(error.value).isprintable() and len(str(error.value)) < 300


def test_names_in_pages_are_escaped(tmp_path: Path) -> None:
    """No name of a file gets into the page as markup."""
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    model = network()
    for n in model.graph.node:
        n.name = evil + n.name
    model.graph.name = evil
    model.graph.input[0].name = evil
    model.graph.node[0].input[0] = evil
    path = tmp_path / "evil.onnx"
    path.write_bytes(model.SerializeToString())
    for more in ([], ["--stage", "graph"], ["--stage", "plan"], ["--stage", "schedule"]):
        page = tmp_path / "page.html"
        assert cli.main(["inspect", str(path), "--dim", "N=2", "--threads", "1", "--html", str(page), *more]) == 0
        text = page.read_text(encoding="utf-8")
        assert "<script>alert" not in text and "<img src=x" not in text
        assert "alert(1)" in text, "the name is there, escaped"


def test_loading_says_that_a_directory_is_code() -> None:
    assert "machine code" in " ".join((polyc.load.__doc__ or "").split())
