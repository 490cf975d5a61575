"""Indices outside of what they choose from: an error that names the node, where ONNX Runtime has one."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import c_programs
import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import polyc
from polyc import BoundsError
from polyc.emit.c import cc
from polyc.emit.gpu.devices import DeviceError, open_device
from polyc.graph_driver.artifacts.c_export import export_c
from polyc.graph_driver.options import CompileOptions

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Value = tuple[str, int, list[Any] | None]


def model(nodes: list[Any], inputs: list[Value], output: Value, constants: dict[str, Any] | None = None) -> ModelProto:
    values = [helper.make_tensor_value_info(*v) for v in inputs]
    given = [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info(*output)], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def node(kind: str, *inputs: str, output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(kind, list(inputs), [output], name=f"the_{kind}", **attributes)


X, Y34 = ("x", FLOAT, [10, 4]), ("y", FLOAT, [3, 4])
U = ("u", FLOAT, [3, 4])
CASES: dict[str, tuple[ModelProto, tuple[int, ...], int, str | None]] = {
    "Gather": (model([node("Gather", "x", "i")], [X, ("i", INT64, [3])], Y34), (3,), 5000, "x"),
    "Gather from the end": (model([node("Gather", "x", "i")], [X, ("i", INT64, [3])], Y34), (3,), -11, "x"),
    "Gather, free sizes": (
        model([node("Gather", "x", "i")], [("x", FLOAT, ["n", 4]), ("i", INT64, ["m"])], ("y", FLOAT, ["m", 4])),
        (3,), 10, "x",
    ),
    "Gather of sums": (
        model([node("Add", "i", "one", output="j"), node("Gather", "x", "j", output="t"), node("Relu", "t")],
              [X, ("i", INT64, [3])], Y34, {"one": np.array([0], np.int64)}),
        (3,), 10, "x",
    ),
    "Gather, masked": (
        model([node("Gather", "x", "i", output="t"), node("Where", "m", "t", "zero")], [X, ("i", INT64, [3])], Y34,
              {"m": np.array([[True], [False], [True]]), "zero": np.array(0, np.float32)}),
        (3,), 10, "x",
    ),
    "Gather, masked by data": (
        model([node("Gather", "x", "i", output="t"), node("Less", "i", "five", output="m"),
               node("Unsqueeze", "m", "one", output="c"), node("Where", "c", "t", "zero")],
              [X, ("i", INT64, [3])], Y34,
              {"five": np.array(5, np.int64), "one": np.array([1], np.int64), "zero": np.array(0, np.float32)}),
        (3,), 10, "x",
    ),
    "Gather, cut": (
        model([node("Gather", "x", "i", output="t"), node("Slice", "t", "two", "three", "zero", output="c"),
               node("Relu", "c")], [X, ("i", INT64, [3])], ("y", FLOAT, [1, 4]),
              {"two": np.array([2], np.int64), "three": np.array([3], np.int64), "zero": np.array([0], np.int64)}),
        (3,), 10, "x",
    ),
    "GatherElements": (model([node("GatherElements", "x", "i")], [X, ("i", INT64, [3, 4])], Y34), (3, 4), 10, "x"),
    "GatherND": (model([node("GatherND", "x", "i")], [X, ("i", INT64, [3, 1])], Y34), (3, 1), -12, "x"),
    "ScatterElements": (
        model([node("ScatterElements", "x", "i", "u")], [X, ("i", INT64, [3, 4]), U], ("y", FLOAT, [10, 4])),
        (3, 4), 10, "y",
    ),
    "ScatterND": (
        model([node("ScatterND", "x", "i", "u")], [X, ("i", INT64, [3, 1]), U], ("y", FLOAT, [10, 4])),
        (3, 1), 11, "y",
    ),
    "OneHot": (
        model([node("OneHot", "i", "depth", "v")], [X, ("i", INT64, [3])], ("y", FLOAT, [3, 5]),
              {"depth": np.array(5, np.int64), "v": np.array([0, 1], np.float32)}),
        (3,), 10, None,
    ),
}  # fmt: skip


def feeds(name: str, index: int | None) -> dict[str, Any]:
    proto, shape, _, _ = CASES[name]
    rng = np.random.default_rng(1)
    indices = rng.permutation(10)[: int(np.prod(shape))].reshape(shape) if np.prod(shape) < 10 else np.tile(
        np.arange(3)[:, None], shape[1:])  # fmt: skip
    if index is not None:
        indices.reshape(-1)[1] = index
    values = {"x": rng.random((10, 4), np.float32), "i": indices.astype(np.int64), "u": rng.random((3, 4), np.float32)}
    return {v.name: values[v.name] for v in proto.graph.input}


def has_opencl() -> bool:
    try:
        open_device("opencl")
    except DeviceError:
        return False
    return True


TARGETS = ("cpu", pytest.param("opencl", marks=pytest.mark.skipif(not has_opencl(), reason="no OpenCL device here")))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_as_onnx_runtime(name: str, target: str) -> None:
    proto, _, outside, array = CASES[name]
    compiled = polyc.compile_model(proto, target=target)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inside = feeds(name, None)
    np.testing.assert_array_equal(compiled(inside)["y"], session.run(None, inside)[0])
    wrong = feeds(name, outside)
    if array is None:
        np.testing.assert_array_equal(compiled(wrong)["y"], session.run(None, wrong)[0])
        return
    with pytest.raises(Exception, match="Non-zero status code"):
        session.run(None, wrong)
    for mode in ("graph", "eager"):
        with pytest.raises(BoundsError) as caught:
            compiled.run(wrong, mode)
        error = caught.value
        assert (error.index, error.size, error.axis, error.array) == (outside, 10, 0, array)
        assert f"the_{name.split()[0].strip(',')}" in str(error)
    np.testing.assert_array_equal(compiled(inside)["y"], session.run(None, inside)[0])  # and goes on


@pytest.mark.skipif(cc.find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("name", CASES)
def test_c_sources_return_the_number_of_the_node(name: str, tmp_path: Path) -> None:
    proto, _, outside, array = CASES[name]
    export_c(proto, tmp_path, "net", CompileOptions(dims={"n": 10, "m": 3} if "free" in name else {}))
    library = ctypes.CDLL(str(c_programs.build(tmp_path, "-O1", "-fsanitize=undefined", "-fno-sanitize-recover")))
    library.net_node.restype = ctypes.c_char_p
    inside, wrong, y = feeds(name, None), feeds(name, outside), np.zeros(40, np.float32)
    expected = polyc.compile_model(proto)(inside)["y"]

    def run(given: dict[str, Any]) -> int:
        y[:] = 0.5
        arrays = [*(given[v.name] for v in proto.graph.input), y]
        return int(library.net_run(*(a.ctypes.data_as(ctypes.c_void_p) for a in arrays)))

    assert run(inside) == 0 and library.net_node(0) == b""
    np.testing.assert_array_equal(y[: expected.size].reshape(expected.shape), expected)
    number = run(wrong)
    assert bool(number) == (array is not None)
    if number:
        assert f"the_{name.split()[0].strip(',')}" in library.net_node(number).decode()
        assert run(inside) == 0  # each run clears its record


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("kind", ["Gather", "GatherElements", "ScatterElements"])
def test_the_axis_is_that_of_the_model(kind: str, axis: int, target: str) -> None:
    """Kernels see fewer axes than the model has, and all of these have one size: only the parts before tell them."""
    shape, index = [7, 7, 7], [7, 7, 7] if kind != "Gather" else [7]
    inputs: list[Value] = [("x", FLOAT, shape), ("i", INT64, index)]
    inputs += [("u", FLOAT, index)] if kind == "ScatterElements" else []
    proto = model([node(kind, *(n for n, _, _ in inputs), axis=axis)], inputs, ("y", FLOAT, shape))
    given = {n: np.zeros(s, np.int64 if t == INT64 else np.float32) for n, t, s in inputs}
    given["i"].reshape(-1)[:] = np.arange(given["i"].size) % 7  # no element of ScatterElements is written twice
    given["i"].reshape(-1)[-1] = 50
    with pytest.raises(BoundsError) as caught:
        polyc.compile_model(proto, target=target, threads=1)(given)
    assert (caught.value.axis, caught.value.index, caught.value.size) == (axis, 50, 7)


@pytest.mark.parametrize("kind", ["GatherND", "ScatterND", "Gather"])
def test_what_the_host_runs_is_checked_too(kind: str) -> None:
    """Coordinates of a tensor of free sizes, and text, have no loops."""
    inputs: list[Value] = [("x", FLOAT, ["a", "b", "c"]), ("i", INT64, [2, 2])]
    inputs += [("u", FLOAT, [2, 7])] if kind == "ScatterND" else []
    more = {"batch_dims": 1} if kind == "GatherND" else {}
    if kind == "Gather":
        inputs, more = [("x", TensorProto.STRING, [2, 7]), ("i", INT64, [2, 2])], {"axis": 1}
    proto = model([node(kind, *(n for n, _, _ in inputs), **more)], inputs, ("y", inputs[0][1], None))
    x = np.zeros((2, 7, 7), np.float32) if kind != "Gather" else np.full((2, 7), "text", object)
    given = {"x": x, "i": np.array([[0, 6], [1, -8]]), "u": np.zeros((2, 7), np.float32)}
    given = {n: given[n] for n, _, _ in inputs}
    compiled = polyc.compile_model(proto, threads=1, symbolic=True if kind != "Gather" else None)
    assert compiled.report().host
    with pytest.raises(BoundsError, match=f"the_{kind}': index -8 ") as caught:
        compiled(given)
    assert (caught.value.axis, caught.value.size) == (2 if kind == "GatherND" else 1, 7)
    given["i"][1, 1] = -7
    assert compiled(given)["y"] is not None


def test_saved_models_check_too(tmp_path: Path) -> None:
    polyc.compile_model(CASES["Gather"][0]).save(tmp_path / "m")
    with pytest.raises(BoundsError, match="node 'the_Gather': index 5000 "):
        polyc.load(tmp_path / "m")(feeds("Gather", 5000))


def test_without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = feeds("Gather", 5000)
    last = wrong["x"][-1]
    np.testing.assert_array_equal(polyc.compile_model(CASES["Gather"][0], checks=False)(wrong)["y"][1], last)
    monkeypatch.setenv("POLYC_CHECK", "0")
    np.testing.assert_array_equal(polyc.compile_model(CASES["Gather"][0])(wrong)["y"][1], last)
