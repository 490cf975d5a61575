"""`polyc.InferenceSession` beside ONNX Runtime's: the same calls, the same answers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tiny_models import model_of

import polyc
from polyc.graph_driver import session as ours
from polyc.poly.errors import ArgumentError, ModelError


def model() -> onnx.ModelProto:
    """Two outputs of two inputs with free sizes, named and unnamed."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "bias"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
        helper.make_node("ReduceMax", ["s"], ["top"], axes=[1], keepdims=0),
    ]
    made = model_of(
        nodes, {"x": ["batch", 6], "bias": [None, 4]}, {"y": ["batch", 4], "top": [None]},
        {"w": rng.standard_normal((6, 4), np.float32)}, name="small",
    )  # fmt: skip
    made.producer_name, made.doc_string, made.model_version = "tests", "two outputs", 3
    helper.set_model_props(made, {"author": "nobody"})
    return made


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[polyc.InferenceSession, onnxruntime.InferenceSession]:
    file = tmp_path_factory.mktemp("session") / "m.onnx"
    onnx.save(model(), file)
    providers = ["CPUExecutionProvider"]
    return (
        polyc.InferenceSession(str(file), providers=providers, threads=1),
        onnxruntime.InferenceSession(str(file), providers=providers),
    )


def feeds(batch: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    return {"x": rng.standard_normal((batch, 6), np.float32), "bias": rng.standard_normal((1, 4), np.float32)}


def test_inputs_outputs_and_meta_data_are_the_same(both: Any) -> None:
    mine, theirs = both
    for get in ("get_inputs", "get_outputs"):
        for a, b in zip(getattr(mine, get)(), getattr(theirs, get)(), strict=True):
            assert (a.name, a.shape, a.type) == (b.name, b.shape, b.type)
            assert str(a).startswith("NodeArg(name=")
    a, b = mine.get_modelmeta(), theirs.get_modelmeta()
    for name in ("producer_name", "graph_name", "domain", "description", "graph_description", "version",
                 "custom_metadata_map"):  # fmt: skip
        assert getattr(a, name) == getattr(b, name), name
    assert mine.get_providers() == theirs.get_providers()


@pytest.mark.parametrize("names", [None, [], ["top"], ["top", "y"]], ids=["none", "empty", "one", "swapped"])
def test_run(both: Any, names: list[str] | None) -> None:
    mine, theirs = both
    for batch in (1, 3):
        got, wanted = mine.run(names, feeds(batch)), theirs.run(names, feeds(batch), None)
        assert isinstance(got, list) and len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, atol=1e-5)


def test_lists_are_arrays_of_the_inputs_type(both: Any) -> None:
    lists = {n: v.tolist() for n, v in feeds().items()}
    for session in both:
        assert np.allclose(session.run(["top"], lists)[0], both[0].run(["top"], feeds())[0], atol=1e-5)
    with pytest.raises(ArgumentError, match="no array of float32"):
        both[0].run(None, lists | {"x": [[1.0], [2.0, 3.0]]})


def test_values_of_onnx_runtime_are_taken(both: Any) -> None:
    mine, _ = both
    values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(v) for n, v in feeds().items()}
    wanted = mine.run(["y"], feeds())[0]
    assert np.array_equal(mine.run(["y"], values)[0], wanted)
    (got,) = mine.run_with_ort_values(["y"], values)
    assert np.array_equal(got.numpy(), wanted) and got.shape() == [3, 4] and got.data_type() == "tensor(float)"


def bind(session: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """As users bind: an input from an array, one from memory, an output to memory, one wherever it will be."""
    binding = session.io_binding()
    binding.bind_cpu_input("bias", feeds()["bias"])
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    binding.bind_output("top")
    session.run_with_iobinding(binding)
    return binding


def test_binding_of_memory(both: Any) -> None:
    x, results = feeds()["x"], []
    for session in both:
        y = np.full((3, 4), np.nan, np.float32)
        binding = bind(session, x, y)
        copied = binding.copy_outputs_to_cpu()
        assert np.array_equal(copied[0], y) and [v.shape() for v in binding.get_outputs()] == [[3, 4], [3]]
        results.append((y, copied[1]))
    for a, b in zip(*results, strict=True):
        assert np.allclose(a, b, atol=1e-5)


def test_what_cannot_be_bound_is_refused(both: Any) -> None:
    binding = both[0].io_binding()
    x = feeds()["x"]
    with pytest.raises(ArgumentError, match="no input 'q'"):
        binding.bind_cpu_input("q", x)
    with pytest.raises(ArgumentError, match="no output 'q'"):
        binding.bind_output("q")
    with pytest.raises(ArgumentError, match="device 'cuda'"):
        binding.bind_input("x", "cuda", 0, np.float32, x.shape, x.ctypes.data)
    with pytest.raises(ArgumentError, match="no address"):
        binding.bind_input("x", "cpu", 0, np.float32, x.shape, 0)
    with pytest.raises(ArgumentError, match="its element_type and shape"):
        binding.bind_output("y", buffer_ptr=x.ctypes.data)


def test_bytes_threads_and_options() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    data = model().SerializeToString()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = polyc.InferenceSession(data, options, ["CPUExecutionProvider"])
    assert session.model.report().threads == 1 and session.get_session_options() is options
    assert polyc.InferenceSession(data, options, threads=2).model.report().threads == 2
    assert np.allclose(session.run(None, feeds())[0], onnxruntime.InferenceSession(data).run(None, feeds())[0])
    with pytest.raises(ArgumentError, match="threads is a number"):
        polyc.InferenceSession(data, None, None, "two")
    with pytest.raises(ArgumentError, match="a path or the bytes of a model, not ModelProto"):
        polyc.InferenceSession(model())
    with pytest.raises(ModelError, match="No such file"):
        polyc.InferenceSession("none.onnx")


def test_what_has_no_meaning_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_said", set())
    nothing = polyc.compile_model(model(), threads=1)
    monkeypatch.setattr(ours, "compile_model", lambda *_, **__: nothing)
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    data, given = model().SerializeToString(), [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            polyc.InferenceSession(data, options, providers=given, disabled_optimizers=["x"])
    texts = [str(w.message) for w in said]
    assert len(texts) == 3 and all(w.category is ours.SessionWarning and w.filename == __file__ for w in said)
    for word in ("CUDAExecutionProvider", "enable_profiling", "disabled_optimizers"):
        assert any(word in t for t in texts)


def test_wrong_names_are_refused(both: Any) -> None:
    mine, _ = both
    with pytest.raises(ArgumentError, match="no output 'z'; it has y, top"):
        mine.run(["z"], feeds())
    with pytest.raises(ArgumentError, match="input 'bias' is missing"):
        mine.run(None, {"x": feeds()["x"]})


def test_a_size_that_cannot_stay_open() -> None:
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Exp", ["s"], ["y"])]
    made = model_of(nodes, {"x": ["n", 1, 4]}, {"y": None}, {}).SerializeToString()
    session, theirs = polyc.InferenceSession(made, threads=1), onnxruntime.InferenceSession(made)
    for n in (2, 1):
        x = {"x": np.ones((n, 1, 4), np.float32)}
        assert session.run(None, x)[0].shape == theirs.run(None, x)[0].shape
    assert len(session.model.specialisations()) == 1
    assert [i.shape for i in session.get_inputs()] == [["n", 1, 4]]
    assert [o.shape for o in session.get_outputs()] == [["n", 4]]  # what follows from the operators


def test_a_size_that_the_file_leaves_out_is_a_number_where_it_follows() -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["y"])]
    made = model_of(nodes, {"x": ["a", "b", 4]}, {"y": [None, None]}, {"to": np.array([-1, 4])}).SerializeToString()
    session, theirs = polyc.InferenceSession(made, threads=1), onnxruntime.InferenceSession(made)
    assert [o.shape for o in session.get_outputs()] == [o.shape for o in theirs.get_outputs()] == [[None, 4]]


def test_a_path_is_a_path(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    assert polyc.InferenceSession(tmp_path / "m.onnx", threads=1).run(["top"], feeds(2))[0].shape == (2,)
