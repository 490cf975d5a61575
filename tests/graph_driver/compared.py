"""Small models, compiled and compared with ONNX Runtime on poisoned memory (helpers of the tests of fusion)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from polyc.graph_driver.checking.check import compare, random_input
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.model import Model


def node(op: str, inputs: list[str], output: str, **attrs: Any) -> onnx.NodeProto:
    """A node of one output, by whose name it goes."""
    return helper.make_node(op, inputs, [output], output, **attrs)


def feeds_of(model: Model) -> dict[str, np.ndarray]:
    """Random inputs, always the same."""
    return {n: random_input(n, d, s, 3) for n, (d, s) in model.inputs.items()}


def checked(
    proto: onnx.ModelProto, threads: int = 1, feeds: Mapping[str, np.ndarray] | None = None, **options: Any
) -> Model:
    """The compiled model, after a comparison with ONNX Runtime; all memory held NaNs before (of f32)."""
    model = compile_model(proto, threads=threads, **options)
    given = feeds_of(model) | dict(feeds or {})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = dict(zip(names, session.run(names, given), strict=True))
    model.executor().arena[:] = 0xFF
    assert max(d.relative for d in compare(model(given), expected)) <= 2e-5
    return model


def labels(model: Model) -> list[str]:
    """What the steps compute, in order."""
    return [s.label for s in model.plan.steps]
