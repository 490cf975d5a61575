"""`--precision auto` and `int8`, whose errors are measured, and targets that do not compute in all types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tiny_models import model_of

import polyc
from polyc.graph_driver.cli import main
from polyc.poly.dtypes import bf16, f16, f32
from polyc.poly.errors import ArgumentError, OptionError
from tests.parts import in_part

node = helper.make_node


def large() -> onnx.ModelProto:
    """What lies between leaves the range of f16; the result does not."""
    constants = {"k": np.float32([3e4]), "s": np.float32([1e-4])}
    nodes = [node("Mul", ["x", "k"], ["a"]), node("Relu", ["a"], ["b"]), node("Mul", ["b", "s"], ["y"])]
    return model_of(nodes, {"x": [5, 33]}, {"y": [5, 33]}, constants)


def product(rows: int, inner: int, columns: int, opset: int = 17) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A product with a bias, and its constants."""
    rng = np.random.default_rng(rows + inner)
    constants = {"w": rng.standard_normal((inner, columns), np.float32), "c": rng.standard_normal(columns, np.float32)}
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "c"], ["y"])]
    model = model_of(nodes, {"x": [rows, inner]}, {"y": [rows, columns]}, constants)
    model.opset_import[0].version = opset
    return model, constants


def by_rows(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The product of codes: a step for each row of `x` and for each column of `w`, sums exact."""
    step, steps = np.abs(x).max(1, keepdims=True) / np.float32(127), np.abs(w).max(0) / np.float32(127)
    sums = np.rint(x / step).astype(np.int64) @ np.rint(w / steps).astype(np.int64)
    return sums * step.astype(np.float64) * steps


def notes(model: polyc.Model, kind: str) -> list[str]:
    return [n for n in model.report().notes if n.startswith(f"{kind}: ")]


def test_auto_never_leaves_the_range() -> None:
    x = np.random.default_rng(0).standard_normal((5, 33)).astype(np.float32) * 4
    want = polyc.compile_model(large(), threads=1)({"x": x})["y"]
    overflown = polyc.compile_model(large(), threads=1, precision="f16")({"x": x})["y"]
    assert np.isfinite(want).all() and not np.isfinite(overflown).all()
    made = polyc.compile_model(large(), threads=1, precision="auto")
    got = made({"x": x})["y"]
    assert np.isfinite(got).all() and 0 < np.abs(got - want).max() < 1e-2 * np.abs(want).max()
    chosen, other = notes(made, "auto")
    assert "bf16 with 0 of 3 nodes in f32" in chosen and "not f16" in other and "on 3 random operands" in chosen


def test_auto_keeps_what_the_bound_forbids() -> None:
    """No 16 bits are within 1e-7, and the results are those of f32."""
    rng = np.random.default_rng(1)
    data = {"x": rng.standard_normal((10, 33)).astype(np.float32)}
    made = polyc.compile_model(large(), threads=1, precision="auto", max_error=1e-7, data=data)
    want = polyc.compile_model(large(), threads=1)({"x": data["x"][:5]})["y"]
    np.testing.assert_array_equal(made({"x": data["x"][:5]})["y"], want)
    assert "3 of 3 nodes in f32, 0 bytes narrow: relative error 0.00e+00 on 2 samples" in notes(made, "auto")[0]


def test_lists_of_what_may_be_narrow() -> None:
    def types(**options: Any) -> list[Any]:
        graph = polyc.compile_model(large(), threads=1, **options).graph
        assert graph is not None
        return [graph.tensors[n.outputs[0]].dtype for n in graph.nodes if n.op_type != "Cast"]

    assert types(precision="bf16", narrow_only=["Relu"]) == [f32, bf16, f32]
    assert types(precision="f16", keep_f32=["a", "y"]) == [f32, f16, f32]  # by results
    assert types(precision="auto", narrow_only=["Mul"], keep_f32=["a"]) in ([f32, f32, f16], [f32, f32, bf16])
    assert types(precision="f32") == [f32, f32, f32]
    with pytest.raises(ArgumentError, match="'Gelu' is no operator, node or result of the model: nothing to make"):
        types(precision="auto", narrow_only=["Gelu"])


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), in_part([(1, 64, 48), (5, 33, 7), (17, 128, 16)], lambda rows, *_: rows == 5)
)
def test_rows_have_steps_of_their_own(rows: int, inner: int, columns: int) -> None:
    model, constants = product(rows, inner, columns, opset=10)  # in which there is no Round
    made = polyc.compile_model(model, threads=1, precision="int8")
    x = np.random.default_rng(2).standard_normal((rows, inner)).astype(np.float32)
    x *= 10.0 ** np.arange(rows, dtype=np.float32)[:, None] / 1e4  # rows of very different size
    want = by_rows(x, constants["w"]) + constants["c"]
    assert (np.abs(made({"x": x})["y"] - want) <= 1e-5 * np.abs(want).max(1, keepdims=True)).all()


def test_rows_of_zeros_and_of_nan() -> None:
    model, constants = product(3, 40, 20)
    x = np.random.default_rng(3).standard_normal((3, 40)).astype(np.float32)
    x[0], x[1, 7] = 0, np.nan
    got = polyc.compile_model(model, threads=1, precision="int8")({"x": x})["y"]
    np.testing.assert_array_equal(got[0], constants["c"])
    assert np.isnan(got[1]).all() and np.isfinite(got[2]).all()


def test_the_error_in_the_report_is_that_of_the_data() -> None:
    model, _ = product(4, 96, 24)
    data = {"x": np.random.default_rng(4).standard_normal((8, 96)).astype(np.float32)}
    made, wide = polyc.compile_model(model, threads=1, precision="int8", data=data), polyc.compile_model(model)
    parts = data["x"][:4], data["x"][4:]
    got, want = (np.concatenate([m({"x": part})["y"].astype(np.float64) for part in parts]) for m in (made, wide))
    sums = np.square(got - want).sum(), np.square(want).sum()
    error = float(np.sqrt(sums[0] / sums[1]))
    assert 1e-4 < error < 2e-2 and f"relative error {error:.2e} on 2 samples" in notes(made, "int8")[0]


def test_products_stay_in_f32_until_the_error_is_met() -> None:
    model, _ = product(4, 96, 24)
    x = np.random.default_rng(5).standard_normal((4, 96)).astype(np.float32)
    made = polyc.compile_model(model, threads=1, precision="int8", max_error=1e-5)
    np.testing.assert_array_equal(made({"x": x})["y"], polyc.compile_model(model, threads=1)({"x": x})["y"])
    assert "0 products of codes, in f32 for their error: p" in notes(made, "int8")[0]


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_of_codes(bias: bool) -> None:
    """Padded images have one step; filters one each."""
    rng = np.random.default_rng(6)
    constants = {"w": rng.standard_normal((20, 6, 3, 3), np.float32), "c": rng.standard_normal(20, np.float32)}
    conv = node("Conv", ["x", "w", *(["c"] if bias else [])], ["y"], pads=[1, 1, 1, 1])
    model = model_of([conv], {"x": [2, 6, 9, 9]}, {"y": [2, 20, 9, 9]}, constants)
    x = rng.standard_normal((2, 6, 9, 9)).astype(np.float32)
    want = polyc.compile_model(model, threads=1)({"x": x})["y"]
    got = polyc.compile_model(model, threads=1, precision="int8")({"x": x})["y"]
    assert 1e-4 < np.sqrt(np.square(got - want).mean() / np.square(want).mean()) < 3e-2


def doubles(kind: int) -> onnx.ModelProto:
    """`y = x * 2 + 1` in one type."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    stored = [onnx.numpy_helper.from_array(np.array([v], dtype), n) for n, v in (("two", 2), ("one", 1))]
    graph = helper.make_graph(
        [node("Mul", ["x", "two"], ["t"]), node("Add", ["t", "one"], ["y"])], "g",
        [helper.make_tensor_value_info("x", kind, [7])], [helper.make_tensor_value_info("y", kind, [7])], stored,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_targets_that_have_f32_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.toml").write_text('base = "x86-64"\nfloats = "f32"\n', encoding="utf-8")
    target = str(tmp_path / "small.toml")
    x = np.random.default_rng(7).standard_normal(7)
    half = polyc.compile_model(doubles(TensorProto.FLOAT16), target=target, threads=1)
    assert half({"x": x.astype(np.float16)})["y"].dtype == np.float16
    assert "f16 is computed in f32 on this target: 2 nodes, 2 casts" in half.report().notes
    with pytest.raises(ArgumentError, match="computes in f64, which the target does not have: --allow-downcast"):
        polyc.compile_model(doubles(TensorProto.DOUBLE), target=target, threads=1)
    made = polyc.compile_model(doubles(TensorProto.DOUBLE), target=target, threads=1, allow_downcast=True)
    np.testing.assert_array_equal(made({"x": x})["y"], (x.astype(np.float32) * 2 + 1).astype(np.float64))
    path = tmp_path / "net.onnx"
    onnx.save(doubles(TensorProto.DOUBLE), path)
    assert (
        main(["inspect", str(path), "--stage", "plan", "--target", target, "--allow-downcast", "--threads", "1"]) == 0
    )
    assert "Cast" in capsys.readouterr().out
    with pytest.raises(OptionError, match="allow_downcast has no effect for"):
        polyc.compile_model(doubles(TensorProto.DOUBLE), threads=1, allow_downcast=True)
    (tmp_path / "odd.toml").write_text('base = "x86-64"\nfloats = "f64"\n', encoding="utf-8")
    with pytest.raises(polyc.PolycError, match="'floats' are f32 and others of"):
        polyc.compile_model(doubles(TensorProto.FLOAT), target=str(tmp_path / "odd.toml"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": "f16", "precision": "bf16"}, "dtype is another name of precision"),
        ({"precision": "f16", "max_error": 0.1}, "max_error has no effect for precision f16"),
        ({"precision": "auto", "max_error": 0}, "an error is a positive number, not 0"),
        ({"precision": "f8"}, "there is no precision 'f8'; choices are f32, f16, bf16, int8, auto"),
        ({"precision": "auto", "data": {"z": np.zeros((5, 33), np.float32)}}, "the data has no array 'x'"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        polyc.compile_model(large(), **options)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, data = tmp_path / "net.onnx", tmp_path / "x.npz"
    onnx.save(product(4, 96, 24)[0], path)
    np.savez(data, x=np.random.default_rng(8).standard_normal((4, 96)).astype(np.float32))
    given = ["--precision", "int8", "--data", str(data), "--max-error", "0.05"]
    assert main(["compile", str(path), "-o", str(tmp_path / "net.polyc"), *given]) == 0
    assert "1 products of codes" in capsys.readouterr().out
    assert main(["run", str(path), "--data", str(data)]) == 2
    assert "data has no effect without a precision" in capsys.readouterr().err
    assert main(["run", str(path), "--precision", "auto", "--data", str(path)]) == 2
    assert "no .npz file with an array for each input" in capsys.readouterr().err
