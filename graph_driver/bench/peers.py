"""ONNX models as callables: polyc and whatever of its peers is installed, all with the same number of threads."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from polyc.poly.errors import OptionError

Inputs = Mapping[str, np.ndarray]
Outputs = list[np.ndarray]
Runner = Callable[[], Outputs]


def onnxruntime_runner(model: ModelProto | str, inputs: Inputs, threads: int = 1) -> Runner:
    """ONNX Runtime's CPU provider with all its optimisations; symbolic sizes are those of the inputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    for name, size in _free_sizes(model, inputs).items():
        options.add_free_dimension_override_by_name(name, size)
    source = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    feeds = dict(inputs)
    return lambda: session.run(None, feeds)


def _free_sizes(model: ModelProto | str, inputs: Inputs) -> dict[str, int]:
    """What the inputs say of the model's symbolic sizes (of one name for two sizes nothing)."""
    graph = (onnx.load(model, load_external_data=False) if isinstance(model, str) else model).graph
    sizes: dict[str, set[int]] = {}
    for given in graph.input:
        dims = given.type.tensor_type.shape.dim
        if given.name in inputs:
            for d, n in zip(dims, inputs[given.name].shape, strict=True):
                if d.dim_param:
                    sizes.setdefault(d.dim_param, set()).add(n)
    return {name: found.pop() for name, found in sizes.items() if len(found) == 1}


def openvino_runner(model: ModelProto | str, inputs: Inputs, threads: int = 1) -> Runner:
    """OpenVINO's CPU plugin in f32 (it would take bf16 where the machine has it), for the inputs' shapes."""
    return openvino_streams(model, inputs, threads, 1)[0]


def openvino_streams(model: ModelProto | str, inputs: Inputs, threads: int, streams: int) -> list[Runner]:
    """`openvino_runner` for several callers: a stream and a request each, `threads` in each stream."""
    import openvino

    core = openvino.Core()
    source: Any = model if isinstance(model, str) else model.SerializeToString()
    network = core.read_model(source) if isinstance(source, str) else core.read_model(model=source, weights=b"")
    if network.is_dynamic():
        network.reshape({name: list(x.shape) for name, x in inputs.items()})
    settings = {"INFERENCE_NUM_THREADS": threads * streams, "NUM_STREAMS": streams, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(network, "CPU", settings)
    feeds = dict(inputs)

    def runner() -> Runner:
        request = compiled.create_infer_request()

        def run() -> Outputs:
            found = request.infer(feeds, share_inputs=True, share_outputs=True)
            return [found[o] for o in compiled.outputs]

        return run

    return [runner() for _ in range(streams)]


def onnxruntime_streams(model: ModelProto | str, inputs: Inputs, threads: int, streams: int) -> list[Runner]:
    """One session that several callers use at the same time."""
    return [onnxruntime_runner(model, inputs, threads)] * streams


PEERS: dict[str, Callable[[ModelProto | str, Inputs, int], Runner]] = {
    "onnxruntime": onnxruntime_runner,
    "openvino": openvino_runner,
}

STREAMS: dict[str, Callable[[ModelProto | str, Inputs, int, int], list[Runner]]] = {
    "onnxruntime": onnxruntime_streams,
    "openvino": openvino_streams,
}
"""For several callers at the same time: threads of each, and how many."""


def readers(
    model: ModelProto | str, inputs: Inputs, peers: Sequence[str], threads: int = 1
) -> tuple[dict[str, Runner], list[str]]:
    """The peers that can read the model, and the names of those that cannot."""
    found: dict[str, Runner] = {}
    refused: list[str] = []
    for name in peers:
        try:
            found[name] = PEERS[name](model, inputs, threads)
        except Exception:  # each library has errors of its own
            refused.append(name)
    return found, refused


def installed() -> list[str]:
    """Names of the peers that can be imported."""
    return [name for name in PEERS if importlib.util.find_spec(name) is not None]


def chosen(names: str | None) -> list[str]:
    """The peers of a comma-separated list; None: all that are installed.

    Raises:
        OptionError: there is no such peer, or it is not installed.
    """
    if names is None:
        return installed()
    wanted = [n for n in names.split(",") if n]
    for name in wanted:
        if name not in PEERS:
            raise OptionError(f"no peer '{name}' reads ONNX files here; known: {', '.join(PEERS)}")
        if name not in installed():
            raise OptionError(f"{name} is not installed: pip install {name}")
    return wanted
