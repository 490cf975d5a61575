"""ONNX models as callables: polyc and whatever of its peers is installed, one thread each."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto

Inputs = Mapping[str, np.ndarray]
Outputs = list[np.ndarray]
Runner = Callable[[], Outputs]


def polyc_runner(model: ModelProto | str, inputs: Inputs) -> Runner:
    """The compiled model; its outputs in the model's order."""
    import polyc

    compiled = polyc.compile_model(model, threads=1)
    feeds = dict(inputs)
    return lambda: list(compiled(feeds).values())


def onnxruntime_runner(model: ModelProto | str, inputs: Inputs) -> Runner:
    """ONNX Runtime's CPU provider with all its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    feeds = dict(inputs)
    return lambda: session.run(None, feeds)


def openvino_runner(model: ModelProto | str, inputs: Inputs) -> Runner:
    """OpenVINO's CPU plugin in f32 (it would take bf16 where the machine has it)."""
    import openvino

    core = openvino.Core()
    source: Any = model if isinstance(model, str) else model.SerializeToString()
    network = core.read_model(source) if isinstance(source, str) else core.read_model(model=source, weights=b"")
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(network, "CPU", settings)
    request = compiled.create_infer_request()
    feeds = dict(inputs)

    def run() -> Outputs:
        found = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [found[o] for o in compiled.outputs]

    return run


PEERS: dict[str, Callable[[ModelProto | str, Inputs], Runner]] = {
    "onnxruntime": onnxruntime_runner,
    "openvino": openvino_runner,
}


def installed() -> list[str]:
    """Names of the peers that can be imported."""
    return [name for name in PEERS if importlib.util.find_spec(name) is not None]
