"""ONNX's backend interface: `prepare`, `run_model`, `supports_device`.

Used as `onnx.backend.test.BackendTest(graph_driver.onnx_backend, __name__)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.graph.onnx_tensors import dtype_of
from polyc.graph_driver.importing.shape_operands import bind_values, deciding_inputs
from polyc.graph_driver.running.model import Model

KEPT = 16  # compiled models of one `PolycRep`; the one used longest ago goes first


def _value(x: Any) -> Any:
    """An input as the suite gives it: a tensor as an array, anything else as it is."""
    if isinstance(x, onnx.TensorProto):
        return onnx.numpy_helper.to_array(x)
    return np.asarray(x) if isinstance(x, (np.generic, int, float, bool)) else x


class PolycRep(BackendRep):
    """A model that is compiled when the shapes of its inputs are known.

    Small inputs that decide shapes (`polyc.graph_driver.importing.shape_operands`) count as shapes: there is
    one compiled model for each combination of shapes and such values. `specialised` are the
    names of those inputs, `models` the models compiled so far.
    """

    def __init__(self, model: onnx.ModelProto, threads: int) -> None:
        self._proto, self._threads = model, threads
        given = {t.name for t in model.graph.initializer}
        self._names = [i.name for i in model.graph.input if i.name not in given]
        kinds = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}  # 0 for what is no tensor
        self._numeric = {n for n in self._names if dtype_of(kinds[n]) is not None}
        self.specialised = deciding_inputs(model)
        self._compiled: dict[Any, Model] = {}

    @property
    def models(self) -> tuple[Model, ...]:
        """The compiled models, the one used last at the end."""
        return tuple(self._compiled.values())

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in the graph's order; `inputs` in the order of its inputs."""
        given = dict(zip(self._names, map(_value, inputs if isinstance(inputs, Sequence) else [inputs]), strict=True))
        fixed = {n: v for n in self.specialised if isinstance(v := given[n], np.ndarray)}
        rest = {n: v for n, v in given.items() if n not in fixed}
        shapes = {n: v.shape for n, v in rest.items() if isinstance(v, np.ndarray) and n in self._numeric}
        key = (*shapes.items(), *((n, v.shape, v.tobytes()) for n, v in fixed.items()))
        compiled = self._compiled.pop(key, None)
        if compiled is None:
            model = bind_values(self._proto, fixed)
            compiled = compile_model(model, threads=self._threads, shapes=shapes)
            while len(self._compiled) >= KEPT:
                del self._compiled[next(iter(self._compiled))]
        self._compiled[key] = compiled
        results = compiled(rest)
        names = [o.name for o in self._proto.graph.output]
        return tuple(namedtupledict("Outputs", names)(*[results[n] for n in names]))


class PolycBackend(Backend):
    """The CPU of this machine."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PolycRep:
        """The model, compiled at its first run for the shapes given then. `threads` defaults to 1."""
        return PolycRep(model, int(kwargs.get("threads", 1)))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU so far."""
        return device == "CPU"


prepare = PolycBackend.prepare
run_model = PolycBackend.run_model
supports_device = PolycBackend.supports_device
