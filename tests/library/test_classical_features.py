"""Operators of `ai.onnx.ml` that prepare features, against the text of the standard."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tree_models import FLOAT, model_of

import polyc
from polyc.poly.errors import ModelError

NAN, INF = float("nan"), float("inf")
ELEMENTS = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.int64: TensorProto.INT64,
    np.int32: TensorProto.INT32,
}
TYPES = list(ELEMENTS)


def found(model: onnx.ModelProto, host: bool = False, **values: np.ndarray) -> np.ndarray:
    """The only result, of kernels alone (or of the host)."""
    shapes = {name: value.shape for name, value in values.items()}
    made = polyc.compile_model(model, shapes=shapes, threads=1)
    assert bool(made.report().host) == host
    (result,) = made(values).values()
    return np.asarray(result)


def run(op_type: str, x: np.ndarray, output: int = FLOAT, opset: int = 21, ml: int = 4, **attrs: Any) -> np.ndarray:
    return found(model_of(op_type, x, attrs, (output,), opset, ml), x=x)


def drawn(dtype: Any, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return (rng.normal(size=shape) * 4).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_scaler(dtype: Any) -> None:
    offset, scale = [0.5, -1.5, 2.0], [2.0, 0.25, -1.0]
    x = drawn(dtype, 5, 3)
    wanted = ((x - np.array(offset)) * np.array(scale)).astype(np.float32)
    np.testing.assert_allclose(run("Scaler", x, offset=offset, scale=scale), wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(run("Scaler", x, offset=[1.0], scale=[3.0]), (x - 1.0) * 3.0, rtol=1e-6)
    with pytest.raises(ModelError, match="attribute offset has 2 elements"):
        run("Scaler", x, offset=[1.0, 2.0], scale=scale)


@pytest.mark.parametrize("dtype", TYPES)
def test_imputer(dtype: Any) -> None:
    x = drawn(dtype, 6, 2)
    if dtype in (np.float32, np.float64):
        x[::2, 1], x[1, 0] = NAN, INF
        y = run("Imputer", x, ELEMENTS[dtype], imputed_value_floats=[9.0, 8.0], replaced_value_float=NAN)
        np.testing.assert_array_equal(y, np.where(np.isnan(x), np.array([9, 8], dtype), x))
        y = run("Imputer", x, ELEMENTS[dtype], imputed_value_floats=[7.0], replaced_value_float=INF)
        np.testing.assert_array_equal(y, np.where(x == INF, np.array(7, dtype), x))
    else:
        x[::2, 1] = -5
        for opset in (9, 21):
            y = run("Imputer", x, ELEMENTS[dtype], opset, imputed_value_int64s=[9, 8], replaced_value_int64=-5)
            np.testing.assert_array_equal(y, np.where(x == -5, [9, 8], x))


@pytest.mark.parametrize("dtype", TYPES)
def test_normalizer(dtype: Any) -> None:
    """`MAX` by the largest element, as the text says; rows of zeros stay."""
    x = drawn(dtype, 7, 4)
    x[3] = 0
    w = x.astype(np.float64)
    sizes = {"MAX": w.max(1), "L1": np.abs(w).sum(1), "L2": np.sqrt((w * w).sum(1))}
    for norm, size in sizes.items():
        for opset in (8, 21):
            y = run("Normalizer", x, opset=opset, norm=norm)
            np.testing.assert_allclose(y, w / np.where(size == 0, 1, size)[:, None], rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match="attribute norm is 'ODD'"):
        run("Normalizer", x, norm="ODD")


@pytest.mark.parametrize("dtype", TYPES)
def test_binarizer(dtype: Any) -> None:
    x = drawn(dtype, 9, 3)
    if dtype in (np.float32, np.float64):
        x[0] = [NAN, INF, 0.5]
    for threshold in (0.5, -1.0, -1.25):
        y = run("Binarizer", x, ELEMENTS[dtype], threshold=threshold)
        np.testing.assert_array_equal(y, (x > np.float32(threshold)).astype(dtype))
        assert y.dtype == dtype


def test_array_feature_extractor() -> None:
    """Along the last axis, by numbers that are known or not; a vector becomes a row."""
    for shape, index in (((4, 6), [5, 0, 0]), ((6,), [1, 4]), ((2, 3, 6), [[3], [2]])):
        x, at = drawn(np.float32, *shape), np.array(index)
        inputs = [helper.make_tensor_value_info("x", FLOAT, shape), helper.make_tensor_value_info("at", 7, at.shape)]
        made = [helper.make_tensor_value_info("y", FLOAT, None)]
        node = helper.make_node("ArrayFeatureExtractor", ["x", "at"], ["y"], domain="ai.onnx.ml")
        sets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 1)]
        wanted = x[..., at.reshape(-1)].reshape(*(shape[:-1] or (1,)), -1)
        graph = helper.make_graph([node], "g", inputs, made)
        np.testing.assert_array_equal(found(helper.make_model(graph, opset_imports=sets), x=x, at=at), wanted)
        graph = helper.make_graph([node], "g", inputs[:1], made, [numpy_helper.from_array(at, "at")])
        np.testing.assert_array_equal(found(helper.make_model(graph, opset_imports=sets), x=x), wanted)


def test_feature_vectorizer() -> None:
    parts = [drawn(np.float32, 4, 3), drawn(np.float32, 4, 2)]
    inputs = [helper.make_tensor_value_info(f"x{k}", FLOAT, p.shape) for k, p in enumerate(parts)]
    node = helper.make_node("FeatureVectorizer", ["x0", "x1"], ["y"], domain="ai.onnx.ml", inputdimensions=[3, 2])
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)])
    np.testing.assert_array_equal(found(model, x0=parts[0], x1=parts[1]), np.concatenate(parts, 1))


@pytest.mark.parametrize("dtype", TYPES)
def test_one_hot_encoder(dtype: Any) -> None:
    """Floats lose their fraction; what is no category gives zeros."""
    categories = [3, -1, 5, 0]
    x = np.array([[3.7, 5.0, -1.5], [0.4, 2.0, 7.0]]).astype(dtype)
    for opset in (9, 21):
        y = run("OneHotEncoder", x, opset=opset, cats_int64s=categories)
        np.testing.assert_array_equal(y, (x.astype(np.int64)[..., None] == categories).astype(np.float32))


ENCODERS = [
    ({"keys_int64s": [3, -7, 3], "values_floats": [0.5, 1.5, 2.5], "default_float": -2.0}, np.int64, TensorProto.FLOAT),
    ({"keys_int64s": [3, -7], "values_int64s": [4, 5]}, np.int64, TensorProto.INT64),
    ({"keys_floats": [3.0, NAN, -0.0], "values_int64s": [4, 5, 6]}, np.float32, TensorProto.INT64),
    ({"keys_floats": [3.0, 0.5], "values_floats": [1.0, 2.0]}, np.float32, TensorProto.FLOAT),
]


@pytest.mark.parametrize(("attrs", "dtype", "output"), ENCODERS)
def test_label_encoder(attrs: dict[str, Any], dtype: Any, output: int) -> None:
    """NaN is a key like others, of a key that comes twice the last value counts, and there is a default."""
    keys, values = (next(v for n, v in attrs.items() if n.startswith(w)) for w in ("keys", "values"))
    x = np.array([[3, -7, 0, 100], [0.5, 3, 1, -0.0]]).astype(dtype)
    if dtype == np.float32:
        x[0, 0] = NAN
    table = {("NaN" if k != k else k): v for k, v in zip(keys, values, strict=True)}
    default = attrs.get("default_float", -0.0 if output == FLOAT else -1)
    wanted = [[table.get("NaN" if v != v else v, default) for v in row] for row in x.tolist()]
    np.testing.assert_array_equal(run("LabelEncoder", x, output, **attrs), wanted)


def test_label_encoder_of_tensors() -> None:
    keys, values = np.array([1.5, 2.5]), np.array([7, 9], np.int32)
    attrs = {
        "keys_tensor": numpy_helper.from_array(keys), "values_tensor": numpy_helper.from_array(values),
        "default_tensor": numpy_helper.from_array(np.array([-4], np.int32)),
    }  # fmt: skip
    x = np.array([[1.5, 2.5, 3.5]])
    np.testing.assert_array_equal(run("LabelEncoder", x, TensorProto.INT32, **attrs), [[7, 9, -4]])
