"""Asinh, Acosh and Atanh of all numbers: near the ends of their ranges, where squares overflow, zeros, infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import polyc

TYPES = {np.float16: (10, 10), ml_dtypes.bfloat16: (16, 7), np.float32: (1, 23), np.float64: (11, 52)}
UNITS = 3.0
"""Units in the last place of the result that these may be away (measured: 2.6, Acosh of f32 at 1.0005; five roundings,
and the logarithm's)."""


def of_all(dtype: Any, low: float) -> np.ndarray:
    """Numbers of all sizes, of both signs unless `low` is 1, and those near the ends."""
    rng = np.random.default_rng()
    info = ml_dtypes.finfo(dtype)
    top = np.log2(float(info.max)) - 0.01
    sizes = 2.0 ** rng.uniform(0 if low == 1 else -top, top, 2000)
    near = 1 + 2.0 ** rng.uniform(-float(info.nmant), 0, 500)
    ends = np.array([float(info.max), 1.0, 2.0, np.inf, np.nan, 0.0, -0.0])
    every = np.concatenate([sizes, near, ends])
    return (every if low == 1 else np.concatenate([every, -every])).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize(("kind", "exact"), [("Asinh", np.arcsinh), ("Acosh", np.arccosh), ("Atanh", np.arctanh)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_all_numbers(kind: str, exact: Callable[[Any], Any], dtype: Any) -> None:
    onnx_type, digits = TYPES[dtype]
    x = of_all(dtype, 1 if kind == "Acosh" else -1)
    if kind == "Atanh":
        rng = np.random.default_rng()
        inside = np.concatenate([rng.uniform(-1, 1, 2000), 1 - 2.0 ** rng.uniform(-digits, 0, 500)])
        x = np.concatenate([x[np.abs(x.astype("f8")) <= 1], x[-14:], inside.astype(dtype), -inside.astype(dtype)])
    y = helper.make_tensor_value_info("y", onnx_type, None)
    node, given = helper.make_node(kind, ["x"], ["y"]), helper.make_tensor_value_info("x", onnx_type, [x.size])
    opsets = [helper.make_opsetid("", 22)]
    proto = helper.make_model(helper.make_graph([node], "g", [given], [y]), opset_imports=opsets, ir_version=9)
    model = polyc.compile_model(onnx.load_from_string(proto.SerializeToString()), threads=1)
    assert not model.plan.host_steps
    found = model({"x": x})["y"]
    expected = exact(x.astype(np.longdouble))
    rounded = expected.astype(dtype)
    same = np.isnan(rounded.astype("f8")) | np.isinf(rounded.astype("f8")) | (x.astype("f8") == 0)
    np.testing.assert_array_equal(found[same].astype("f8"), rounded[same].astype("f8"))
    zero = (x.astype("f8") == 0) & (rounded.astype("f8") == 0)
    np.testing.assert_array_equal(np.signbit(found[zero].astype("f8")), np.signbit(rounded[zero].astype("f8")))
    smallest = float(ml_dtypes.finfo(dtype).smallest_normal)
    unit = np.maximum(2.0 ** np.floor(np.log2(np.abs(expected[~same]))), smallest) * 2.0**-digits
    away = np.abs(found[~same].astype(np.longdouble) - expected[~same]) / unit
    worst = int(away.argmax())
    assert away[worst] <= UNITS, (x[~same][worst], found[~same][worst], expected[~same][worst])
