"""Inputs whose value is fixed when the model is compiled: a sampling rate, a mode, a number of beams.

What depends on them alone is computed then: conditions are decided, shapes known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.graph.onnx_tensors import dtype_of
from polyc.poly.errors import ModelError


def bound_values(graph: onnx.GraphProto, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The values of the named inputs, in the types and shapes that the model gives them.

    Raises:
        ModelError: there is no such input, it is no tensor of numbers, or the value does not fit it.
    """
    inputs = {i.name: i.type for i in graph.input}
    found = {}
    for name, value in values.items():
        if name not in inputs:
            raise ModelError(f"the model has no input '{name}' to bind; it has {', '.join(sorted(inputs)) or 'none'}")
        dtype = dtype_of(inputs[name].tensor_type.elem_type) if inputs[name].HasField("tensor_type") else None
        if dtype is None:
            raise ModelError(f"input '{name}' cannot be bound: it is no tensor of numbers")
        found[name] = _fitting(name, value, dtype.np, inputs[name].tensor_type)
    return found


def _fitting(name: str, value: Any, dtype: np.dtype[Any], kind: onnx.TypeProto.Tensor) -> np.ndarray:
    given = np.asarray(value)
    wrong = ModelError(f"input '{name}' cannot be bound to {value!r}: its type is {dtype}")
    if given.dtype.kind not in "biuf":
        raise wrong
    array = given.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(array, given):
        raise wrong
    if not kind.HasField("shape"):
        return array
    dims = kind.shape.dim
    if array.ndim == 0 and all(d.dim_value <= 1 for d in dims):
        return array.reshape((1,) * len(dims))  # a plain number for one element
    if array.ndim != len(dims) or any(d.dim_value not in (0, n) for d, n in zip(dims, array.shape)):
        raise ModelError(f"input '{name}' cannot be bound to a value of shape {list(array.shape)}")
    return array
