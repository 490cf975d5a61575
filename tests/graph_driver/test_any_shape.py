"""`compile_model(path)(feeds)` with nothing said of sizes: symbolic where that can be, else specialised to the call."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tiny_models import model_of

import polyc
from polyc.graph_driver.running.all_sizes import AllSizes
from polyc.graph_driver.running.model import Model
from polyc.graph_driver.running.per_call import PerCall
from polyc.graph_driver.running.specialising import KEPT
from polyc.poly.errors import ArgumentError, BuildError, ModelError

I = TensorProto.INT64


def reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def same(model: onnx.ModelProto, compiled: Model, feeds: dict[str, np.ndarray]) -> None:
    """The compiled model gives what ONNX Runtime does."""
    ours = compiled(feeds)
    for name, wanted in reference(model, feeds).items():
        assert ours[name].dtype == wanted.dtype and ours[name].shape == wanted.shape
        assert np.allclose(ours[name], wanted, rtol=1e-5, atol=1e-5)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def perceptron(batch: Any = "batch") -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    return model_of(nodes, {"x": [batch, 12]}, {"y": [batch, 5]}, {"w": numbers(12, 5)})


def squeezed() -> onnx.ModelProto:
    """`Squeeze` without axes: what it does depends on whether the batch is 1."""
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Exp", ["s"], ["y"])]
    return model_of(nodes, {"x": ["batch", 1, 6]}, {"y": None}, {})


def counted() -> onnx.ModelProto:
    """A loop over the rows of `x` that adds them up and keeps each sum."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
            helper.make_node("Add", ["sum", "row"], ["total"]),
            helper.make_node("Identity", ["total"], ["kept"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", I, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("kept", TensorProto.FLOAT, [4]),
        ],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Squeeze", ["shape"], ["count"]),
        helper.make_node("Loop", ["count", "", "zero"], ["last", "all"], body=body),
    ]
    return model_of(nodes, {"x": ["steps", 4]}, {"last": [4], "all": None}, {"zero": np.zeros(4, np.float32)})


def in_pieces() -> onnx.ModelProto:
    """A sequence of as many pieces as there are rows, joined the other way round."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["pieces"], axis=0),
        helper.make_node("ConcatFromSequence", ["pieces"], ["y"], axis=1),
    ]
    return model_of(nodes, {"x": ["rows", 3]}, {"y": None}, {})


def test_a_leading_size_is_free() -> None:
    compiled = polyc.compile_model(perceptron(), threads=1)
    assert isinstance(compiled.running, AllSizes)
    for batch in (1, 2, 7):
        same(perceptron(), compiled, {"x": numbers(batch, 12)})
    assert compiled.specialisations() == ()


def test_a_size_that_a_guard_excludes_is_specialised() -> None:
    compiled = polyc.compile_model(squeezed(), threads=1)
    assert isinstance(compiled.running, AllSizes)
    same(squeezed(), compiled, {"x": numbers(3, 1, 6)})
    assert not compiled.specialisations()
    for _ in range(2):
        same(squeezed(), compiled, {"x": numbers(1, 1, 6)})
    (special,) = compiled.specialisations()
    assert special.shapes == {"x": (1, 1, 6)} and special.seconds > 0 and "batch >= 2" in special.why
    assert "sizes    specialised to x[1, 1, 6] in " in str(compiled.report())
    assert compiled.model_for({"x": numbers(1, 1, 6)}) is special.model
    assert compiled.model_for({"x": numbers(5, 1, 6)}) is compiled
    for mode in ("graph", "eager", "mixed"):
        eager = ["Exp"] if mode == "mixed" else []
        assert compiled.run({"x": numbers(1, 1, 6)}, mode, eager)["y"].shape == (6,)
    assert compiled.inspect({"x": numbers(1, 1, 6)}, ["y"])["y"].shape == (6,)


@pytest.mark.parametrize("make", [counted, in_pieces], ids=["loop", "sequence"])
def test_a_count_of_a_loop_or_a_sequence_is_a_number_of_each_call(make: Any) -> None:
    model = make()
    compiled = polyc.compile_model(model, threads=1)
    assert isinstance(compiled.running, PerCall)
    for rows in (1, 5):
        feeds = {"x": numbers(rows, 4 if make is counted else 3)}
        same(model, compiled, feeds)
        assert not compiled.model_for(feeds).report().host
    assert [s.shapes["x"][0] for s in compiled.specialisations()] == [1, 5]
    text = str(compiled.report())
    assert "numbers of each call" in text and "specialised to x[5, " in text


def test_strict_shapes_refuses_instead() -> None:
    compiled = polyc.compile_model(squeezed(), threads=1, strict_shapes=True)
    assert compiled({"x": numbers(2, 1, 6)})["y"].shape == (2, 6)
    with pytest.raises(ArgumentError, match="compiled for batch >= 2"):
        compiled({"x": numbers(1, 1, 6)})
    with pytest.raises(ModelError, match="sizes not given: batch"):
        polyc.compile_model(perceptron(), threads=1, strict_shapes=True, symbolic=False)


def test_what_was_asked_for_or_is_in_the_file_is_not_specialised() -> None:
    asked = polyc.compile_model(squeezed(), threads=1, dims={"batch": (2, 4)})
    for batch in (1, 5):
        with pytest.raises(ArgumentError, match="2 <= batch <= 4"):
            asked({"x": numbers(batch, 1, 6)})
    open_ = polyc.compile_model(squeezed(), threads=1)
    for wrong in ((2, 1, 5), (1, 1, 5), (2, 6), (2, 2, 6)):
        with pytest.raises(ArgumentError, match="compiled for"):
            open_({"x": numbers(*wrong)})
    assert not asked.specialisations() and not open_.specialisations()


def test_sizes_of_one_name_may_differ_where_the_operators_do_not_mind() -> None:
    model = model_of([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["n", 3], "b": ["n", 3]}, {"y": None}, {})
    compiled = polyc.compile_model(model, threads=1)
    for a, b in ((4, 4), (4, 1), (1, 4)):
        same(model, compiled, {"a": numbers(a, 3), "b": numbers(b, 3)})
    with pytest.raises(ArgumentError, match=r"does not run at a\[4, 3\], b\[2, 3\]"):
        compiled({"a": numbers(4, 3), "b": numbers(2, 3)})


def test_no_rows_at_all() -> None:
    compiled = polyc.compile_model(perceptron(), threads=1)
    same(perceptron(), compiled, {"x": numbers(0, 12)})


def test_an_input_of_unknown_rank() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": None}, {"y": None}, {})
    compiled = polyc.compile_model(model, threads=1)
    for shape in ((3,), (2, 4), ()):
        same(model, compiled, {"x": numbers(*shape)})


@pytest.mark.parametrize("name", ["unk__316", "N", "a.b-c d", "p2o.DynamicDimension.0"])
def test_names_of_sizes_are_those_of_the_file(name: str) -> None:
    compiled = polyc.compile_model(perceptron(name), threads=1)
    assert isinstance(compiled.running, AllSizes)
    assert [r.key for r in compiled.running.symbols.ranges.values()] == [name]
    assert f"size {name} >= 1" in str(compiled.report())
    assert type(polyc.compile_model(perceptron(name), threads=1, dims={name: 2})) is Model


def test_an_unnamed_size_has_a_stable_name() -> None:
    compiled = polyc.compile_model(perceptron(None), threads=1)
    assert "size x.0 >= 1" in str(compiled.report())


def test_options_that_need_numbers() -> None:
    compiled = polyc.compile_model(perceptron(), threads=1, contiguous=[["h"]])
    assert isinstance(compiled.running, PerCall) and "contiguous" in compiled.running.why
    never = polyc.compile_model(perceptron(), threads=1, symbolic=False)
    assert isinstance(never.running, PerCall)
    with pytest.raises(BuildError, match="compiled for the shapes of each call"):
        _ = never.plan
    with pytest.raises(BuildError, match="give the sizes"):
        never.save("nowhere")
    with pytest.raises(ArgumentError, match=r"input 'x' has shape \[2, 3\], the model is for x\[batch, 12\]"):
        never({"x": numbers(2, 3)})
    with pytest.raises(ArgumentError, match="input 'x' is missing"):
        never({})
    same(perceptron(), never, {"x": numbers(2, 12)})
    assert list(never.plan.inputs) == ["x"]
    assert never.specialisations()[0].model.plan is never.plan


def test_they_are_kept_up_to_a_bound_and_made_once_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = polyc.compile_model(squeezed(), threads=1, symbolic=False)

    def call(batch: int) -> None:
        assert compiled({"x": numbers(batch, 1, 6)})["y"].size == 6 * batch

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(call, (1, 2) * 3))  # raises what a call raises
    assert len(compiled.report().specialised) == 2
    for batch in range(3, KEPT + 3):
        call(batch)
    assert len(compiled.specialisations()) == KEPT
    assert [s.shapes["x"][0] for s in compiled.specialisations()][-1] == KEPT + 2


def test_a_file_that_has_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(squeezed(), file)
    monkeypatch.chdir(tmp_path)
    compiled = polyc.compile_model("m.onnx", threads=1)
    monkeypatch.chdir(os.sep)
    assert compiled({"x": numbers(1, 1, 6)})["y"].shape == (6,)
    onnx.save(perceptron(), file)
    with pytest.raises(ModelError, match="has changed since it was compiled"):
        compiled.specialise({"batch": 4})


def test_a_protobuf_that_changes_later_changes_nothing() -> None:
    model = squeezed()
    compiled = polyc.compile_model(model, threads=1)
    model.graph.node[1].op_type = "Neg"
    same(squeezed(), compiled, {"x": numbers(1, 1, 6)})


def test_a_compiled_directory_says_why_it_cannot(tmp_path: Path) -> None:
    polyc.compile_model(squeezed(), threads=1).save(tmp_path / "m")
    loaded = polyc.load(tmp_path / "m")
    assert loaded({"x": numbers(3, 1, 6)})["y"].shape == (3, 6)
    with pytest.raises(ArgumentError, match="batch >= 2.*a compiled directory keeps no operators"):
        loaded({"x": numbers(1, 1, 6)})
    assert loaded.specialisations() == ()


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    from polyc.graph_driver.cli import main

    code = main([str(a) for a in arguments])
    out = capsys.readouterr()
    return code, out.out + out.err


def test_commands_choose_sizes_and_say_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.onnx"
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    onnx.save(model_of(nodes, {"x": ["batch", 2, "height", None]}, {"y": None}, {"w": numbers(3, 2, 3, 3)}), file)
    code, text = shown(capsys, "run", file, "--check", "--threads", 1)
    assert code == 0 and "sizes    batch = 1, height = 128, x.3 = 96 chosen, because nothing was said" in text
    code, text = shown(capsys, "run", file, "--check", "--threads", 1, "--dim", "batch=3", "--dim", "x.3=9")
    assert code == 0 and "sizes    height = 128 chosen" in text and "float32[3, 3, 63, 4]" in text
    code, text = shown(capsys, "inspect", file, "--stage", "graph", "--target", "sm_80")
    assert code == 0 and "batch = 1, height = 128, x.3 = 96 chosen" in text
    onnx.save(counted(), file)
    code, text = shown(capsys, "run", file, "--check", "--threads", 1)
    assert code == 0 and "steps = 1 chosen" in text


def test_a_check_of_a_constant_output_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Mul", ["x", "zero"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    onnx.save(
        model_of(nodes, {"x": [2, 3]}, {"y": [2, 3], "z": [2, 3]}, {"zero": np.zeros(1, np.float32)}),
        tmp_path / "m.onnx",
    )
    code, text = shown(capsys, "run", tmp_path / "m.onnx", "--check", "--threads", 1)
    assert code == 0
    (y,) = [line for line in text.splitlines() if line.startswith("check    y:")]
    (z,) = [line for line in text.splitlines() if line.startswith("check    z:")]
    assert y.endswith("the output is constant, which checks little") and "constant" not in z


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("opset", [12, 17])
def test_pieces_of_a_tensor_are_tensors(opset: int, keepdims: int) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["rows"], axis=1, keepdims=keepdims),
        helper.make_node("SequenceAt", ["rows", "last"], ["y"]),
        helper.make_node("SplitToSequence", ["x", "two"], ["pairs"], axis=1),
        helper.make_node("SequenceAt", ["pairs", "last"], ["z"]),
        helper.make_node("SequenceLength", ["pairs"], ["n"]),
    ]
    model = model_of(
        nodes, {"x": [4, "length"]}, {"y": None, "z": None, "n": (I, None)},
        {"last": np.array(-1), "two": np.array(2)}, opset,
    )  # fmt: skip
    compiled = polyc.compile_model(model, threads=1)
    for length in (1, 5):
        same(model, compiled, {"x": numbers(4, length)})
    assert not compiled.model_for({"x": numbers(4, 5)}).report().host


def test_a_quantised_recurrent_layer_after_a_stride() -> None:
    """Its number of steps is a quotient of the size that is free."""
    rng = np.random.default_rng(2)
    codes = {n: rng.integers(0, 255, (1, k, 32)).astype(np.uint8) for n, k in (("w", 4), ("r", 8))}
    scales = {n: np.full(1, 0.01, np.float32) for n in ("sw", "sr")}
    zeros = {n: np.full(1, 120, np.uint8) for n in ("zw", "zr")}
    names = ["t", "w", "r", *[""] * 5, "sw", "zw", "sr", "zr"]
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2], strides=[2]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[2, 0, 1]),
        helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=8),
    ]
    model = model_of(nodes, {"x": ["batch", 4, "length"]}, {"y": None}, codes | scales | zeros)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    compiled = polyc.compile_model(model, threads=1)
    assert isinstance(compiled.running, AllSizes) and not compiled.report().host
    for batch, length in ((1, 8), (2, 5)):
        x = numbers(batch, 4, length)
        assert np.allclose(compiled({"x": x})["y"], reference(model, {"x": x})["y"], atol=2e-2)


def test_models_for_any_shape_pickle() -> None:
    """Copies run at sizes that the first has not met, too."""
    for model, shapes in ((squeezed(), [(2, 1, 6), (1, 1, 6)]), (counted(), [(1, 4), (5, 4)])):
        compiled = polyc.compile_model(model, threads=1)
        copied = pickle.loads(pickle.dumps(compiled))
        assert type(copied) is type(compiled)
        for shape in shapes:
            same(model, copied, {"x": numbers(*shape)})
        assert copied.specialisations()
    session = polyc.InferenceSession(squeezed().SerializeToString(), threads=1)
    again = pickle.loads(pickle.dumps(session))
    x = numbers(3, 1, 6)
    np.testing.assert_array_equal(again.run(None, {"x": x})[0], session.run(None, {"x": x})[0])


def test_a_bug_that_only_symbolic_sizes_meet_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.graph_driver.graph.defects import DefectWarning
    from polyc.graph_driver.inference import symbolic as infer

    def broken(*_: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setitem(infer.RULES, "Relu", broken)
    with pytest.warns(DefectWarning, match="internal error: KeyError"):
        compiled = polyc.compile_model(perceptron(), threads=1)
    same(perceptron(), compiled, {"x": numbers(3, 12)})
    with pytest.raises(KeyError):
        polyc.compile_model(perceptron(), threads=1, strict_shapes=True)


def test_a_model_that_no_sizes_fit_is_refused_at_once() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Concat", ["w", "v"], ["y"], axis=0)]
    wrong = model_of(nodes, {"x": ["batch", 3]}, {"y": None, "h": None}, {"w": numbers(2, 3), "v": numbers(2, 4)})
    with pytest.raises(ModelError, match="Concat"):
        polyc.compile_model(wrong, threads=1)
