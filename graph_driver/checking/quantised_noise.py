"""How far the result of a quantised model moves when its weights change in the last digits.

Where a value lies near the middle between two 8-bit codes, the last bit of a sum decides which one it
becomes, and the next layers carry that on: two right programs differ by whole codes. The model's own
answer to changes of one part in a million says how much is due to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from polyc.graph_driver.checking.check import compare, onnxruntime_outputs
from polyc.graph_driver.checking.unsigned_weights import ROUNDING, without_signed_weights
from polyc.graph_driver.graph.subgraphs import nodes_of

CHANGE = 1e-6  # relative, of each weight: the rounding of a handful of f32 operations
DRAWS = 8
FACTOR = 2.0  # what two programs may differ by, in units of what the draws show


def quantises(path: Path) -> bool:
    """Whether a model rounds values to codes at run time."""
    model = onnx.load(path, load_external_data=False)
    return any(n.op_type in ROUNDING for n in nodes_of(model.graph.node))


def allowances(path: Path, inputs: Mapping[str, np.ndarray], expected: Mapping[str, Any]) -> dict[str, float]:
    """For each output `FACTOR` times its largest relative change over `DRAWS` changes of the weights."""
    raw = without_signed_weights(path)
    if raw is None:
        raw = onnx.load(path).SerializeToString()
    largest = dict.fromkeys(expected, 0.0)
    for seed in range(DRAWS):
        moved = onnxruntime_outputs(_changed(raw, np.random.default_rng(seed)), inputs, optimise=False)
        for d in compare(moved, expected):
            largest[d.name] = max(largest[d.name], d.relative)
    return {name: FACTOR * value for name, value in largest.items()}


def _changed(raw: bytes, rng: np.random.Generator) -> bytes:
    model = onnx.ModelProto.FromString(raw)
    for tensor in _constants(model):
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.float32 and value.ndim:
            factor = 1 + CHANGE * rng.uniform(-1, 1, value.shape)
            tensor.CopyFrom(numpy_helper.from_array((value * factor).astype(np.float32), tensor.name))
    return bytes(model.SerializeToString())


def _constants(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from model.graph.initializer
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            yield node.attribute[0].t
