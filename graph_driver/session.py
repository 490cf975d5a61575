"""ONNX Runtime's session interface over a compiled model: `polyc.InferenceSession`.

What everybody passes is accepted; what has no meaning here is said once, by a `SessionWarning`.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.graph.onnx_tensors import dtype_of
from polyc.graph_driver.importing.reading import read
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

PROVIDER = "CPUExecutionProvider"


class SessionWarning(UserWarning):
    """Something that ONNX Runtime's sessions take has no effect here."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its `name`, its `shape` (numbers, names of the file, None) and `type` (`tensor(float)`)."""

    name: str
    shape: list[int | str | None]
    type: str

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


@dataclass(frozen=True)
class ModelMetadata:
    """What a model file says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str]


class OrtValue:
    """A value of an `IOBinding` (ours are arrays; those of ONNX Runtime are taken, too)."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def numpy(self) -> Any:
        """The array."""
        return self._value

    def shape(self) -> list[int]:
        """Its sizes."""
        return list(np.shape(self._value))

    def data_type(self) -> str:
        """As `NodeArg.type`."""
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(self._value).dtype)
        return f"tensor({_element(int(kind))})"

    def device_name(self) -> str:
        """Always `cpu`."""
        return "cpu"

    def is_tensor(self) -> bool:
        """Whether it is an array of numbers."""
        return isinstance(self._value, np.ndarray)


class IOBinding:
    """Inputs and outputs of a run, bound one by one: those bound to memory are written there, without a copy."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """An array as input `name`. Raises `ArgumentError`: there is no such input."""
        self._known(name, self._session.get_inputs(), "input")
        self._inputs[name] = np.asarray(arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """A value of ONNX Runtime, or of `get_outputs()`, as input `name`. Raises `ArgumentError`."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Memory of this process as input `name`.

        Raises:
            ArgumentError: there is no such input, or the memory is that of another device.
        """
        self.bind_cpu_input(name, _at_address(device_type, element_type, shape, buffer_ptr))

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Output `name` is wanted; with `buffer_ptr` it is written there. Raises `ArgumentError`."""
        self._known(name, self._session.get_outputs(), "output")
        if buffer_ptr is None:
            _check_device(device_type)
            self._outputs[name] = None
        elif element_type is None or shape is None:
            raise ArgumentError(f"output '{name}' is bound to memory: give its element_type and shape, too")
        else:
            self._outputs[name] = _at_address(device_type, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Output `name` is written to the memory of this value. Raises `ArgumentError`."""
        self._known(name, self._session.get_outputs(), "output")
        self._outputs[name] = ortvalue.numpy()

    def run(self) -> None:
        """Run with what is bound; all outputs when none is. Raises as `InferenceSession.run` does."""
        names = list(self._outputs) or [o.name for o in self._session.get_outputs()]
        out = {n: a for n, a in self._outputs.items() if a is not None}
        made = self._session.model(self._inputs, out)
        self._results = {n: made[n] for n in names}

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays, in the order in which they were bound."""
        return list(self._results.values())

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run."""
        return [OrtValue(v) for v in self._results.values()]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs and their values."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for on a CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for on a CPU."""

    def _known(self, name: str, among: Sequence[NodeArg], kind: str) -> None:
        if name not in [a.name for a in among]:
            raise ArgumentError(f"the model has no {kind} '{name}'; it has {', '.join(a.name for a in among)}")


class InferenceSession:
    """A model with the interface of `onnxruntime.InferenceSession`; `model` is the compiled one.

    The model runs at all sizes: it is compiled once for those that can stay open, else at the first call with new
    shapes (see `polyc.compile_model`).

    Args:
        path_or_bytes: a file, or a serialised model.
        sess_options: an `onnxruntime.SessionOptions`, or anything with such attributes: `intra_op_num_threads` is
            taken. What asks for something that there is not here is said once.
        providers: only `CPUExecutionProvider` has a meaning; others are said once.
        threads: for parallel loops, before that of the options; None and 0 are all cores.
        provider_options: has no meaning here.
        kwargs: other arguments of ONNX Runtime; they have no meaning here.

    Raises:
        ModelError: the file is broken.
        ArgumentError: `threads` is no number.
    """

    def __init__(
        self, path_or_bytes: str | Path | bytes, sess_options: Any = None, providers: Sequence[Any] | None = None,
        threads: int | None = None, *, provider_options: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        source = _source(path_or_bytes)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 0):
            raise ArgumentError(f"threads is a number, not {threads!r:.80}")
        wanted = threads if threads is not None else int(getattr(sess_options, "intra_op_num_threads", 0) or 0)
        self._options = sess_options
        more = [*kwargs, *(["provider_options"] if provider_options else [])]
        _once(_about_options(sess_options) + _about_providers(providers) + [f"{n} has no effect" for n in more])
        proto, _ = read(source)
        given = {t.name for t in proto.graph.initializer}
        self._inputs = [_argument(i) for i in proto.graph.input if i.name not in given]
        self._dtypes = _dtypes(proto.graph.input)
        self._defaults = [_argument(i) for i in proto.graph.input if i.name in given]
        self._outputs = [_argument(o) for o in proto.graph.output]
        self._about = ModelMetadata(
            proto.producer_name, proto.graph.name, proto.domain, proto.doc_string, proto.graph.doc_string,
            proto.model_version, {p.key: p.value for p in proto.metadata_props},
        )  # fmt: skip
        del proto
        self.model: Model = compile_model(source, threads=wanted or None)
        self._outputs = [_with_shape(o, self.model) for o in self._outputs]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run must give."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, with what the file says of them."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a value in the file. It is compiled in: they cannot be given."""
        return list(self._defaults)

    def get_modelmeta(self) -> ModelMetadata:
        """Producer, version, description, the user's own entries."""
        return self._about

    def get_session_options(self) -> Any:
        """What was given as `sess_options`."""
        return self._options

    def get_providers(self) -> list[str]:
        """`["CPUExecutionProvider"]`."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """None for the CPU."""
        return {PROVIDER: {}}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        """All runs are on the CPU: others are said once."""
        _once(_about_providers(providers))

    def disable_fallback(self) -> None:
        """There is one provider, nothing to fall back to."""

    def enable_fallback(self) -> None:
        """There is one provider, nothing to fall back to."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs of these names, in this order (None: all, in the model's).

        Raises:
            ArgumentError: there is no such output, or inputs do not fit.
            BoundsError: an index is outside of what it chooses from.
        """
        names = [o.name for o in self._outputs] if not output_names else list(output_names)
        known = {o.name for o in self._outputs}
        for name in names:
            if name not in known:
                raise ArgumentError(
                    f"the model has no output '{name}'; it has {', '.join(o.name for o in self._outputs)}"
                )
        made = self.model({n: _plain(v, self._dtypes.get(n)) for n, v in input_feed.items()})
        return [made[n] for n in names]

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[OrtValue]:
        """As `run`, with values of ONNX Runtime as inputs."""
        return [OrtValue(v) for v in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Inputs and outputs to bind before `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run with what is bound. Raises as `run` does."""
        iobinding.run()


def _source(given: Any) -> Path | bytes:
    """A path, or a serialised model. Raises `ArgumentError`."""
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    if isinstance(given, (str, os.PathLike)):
        return Path(given)
    raise ArgumentError(f"InferenceSession takes a path or the bytes of a model, not {type(given).__name__}")


def _with_shape(output: NodeArg, model: Model) -> NodeArg:
    """An output with what follows from the operators (None: a formula) where the file says nothing of the shape, and
    with the numbers that follow where it leaves out a size."""
    sizes = model.shape_of(output.name)
    if sizes is None:
        return output
    if not output.shape:
        return replace(output, shape=list(sizes))
    if len(output.shape) != len(sizes):
        return output
    said = zip(output.shape, sizes, strict=True)
    return replace(output, shape=[n if s is None and isinstance(n, int) else s for s, n in said])


def _plain(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """An input as the model takes it: `OrtValue`s as their arrays; numbers, and lists of them, have the input's type.

    Raises:
        ArgumentError: a list that is no array of numbers.
    """
    if hasattr(value, "numpy") and hasattr(value, "device_name"):
        return value.numpy()
    if dtype is None or not isinstance(value, (list, tuple, int, float)):
        return value
    try:
        return np.array(value, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(f"an input is no array of {dtype}: {error}") from None


def _dtypes(inputs: Sequence[onnx.ValueInfoProto]) -> dict[str, np.dtype[Any]]:
    """The element types of inputs that are tensors of numbers."""
    found = {i.name: dtype_of(i.type.tensor_type.elem_type) for i in inputs if i.type.HasField("tensor_type")}
    return {n: np.dtype(kind.np) for n, kind in found.items() if kind is not None}


def _argument(value: onnx.ValueInfoProto) -> NodeArg:
    """An input or output as ONNX Runtime describes it."""
    shape: list[int | str | None] = []
    for d in value.type.tensor_type.shape.dim:
        shape.append(int(d.dim_value) if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or None)
    return NodeArg(value.name, shape, _type_text(value.type))


def _type_text(kind: onnx.TypeProto) -> str:
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return f"seq({_type_text(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({_type_text(kind.optional_type.elem_type)})"
    if which == "map_type":
        return f"map({_element(kind.map_type.key_type)},{_type_text(kind.map_type.value_type)})"
    if which == "sparse_tensor_type":
        return f"sparse_tensor({_element(kind.sparse_tensor_type.elem_type)})"
    return f"tensor({_element(kind.tensor_type.elem_type)})"


def _element(number: int) -> str:
    """The name of an element type: `float`, `int64`, ..."""
    return str(onnx.TensorProto.DataType.Name(number)).lower()


def _check_device(device_type: str) -> None:
    if str(device_type).lower() != "cpu":
        raise ArgumentError(f"memory of device '{device_type}' cannot be bound: polyc.InferenceSession runs on the CPU")


def _at_address(device_type: str, element_type: Any, shape: Sequence[int], address: int) -> np.ndarray:
    """Memory of this process as an array."""
    _check_device(device_type)
    if isinstance(element_type, int):
        kind = dtype_of(element_type)
        if kind is None:
            raise ArgumentError(f"element type {element_type} is no number")
        dtype = np.dtype(kind.np)
    else:
        dtype = np.dtype(element_type)
    sizes = tuple(int(n) for n in shape)
    if not isinstance(address, int) or address <= 0 or min((0, *sizes)) < 0:
        raise ArgumentError(f"{address!r:.40} is no address of an array of shape {list(sizes)}")
    count = int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer(memoryview((ctypes.c_char * count).from_address(address)), dtype).reshape(sizes)


_DEFAULTS: Mapping[str, Any] = {
    "enable_profiling": False, "optimized_model_filepath": "", "use_deterministic_compute": False,
    "inter_op_num_threads": 0,
}  # fmt: skip
"""Settings that ask for something that a session here does not do, and what they are when not asked for.

Others (levels of optimisation and logging, arenas, patterns of memory, the order of execution) choose between ways to
the same results."""


def _about_options(options: Any) -> list[str]:
    asked = [n for n, absent in _DEFAULTS.items() if getattr(options, n, absent) != absent]
    return [f"{n} of the session options has no effect" for n in asked]


def _about_providers(providers: Sequence[Any] | None) -> list[str]:
    names = [p[0] if isinstance(p, tuple) else p for p in providers or ()]
    return [f"{n} has no meaning (it runs on the CPU)" for n in names if n != PROVIDER]


_said: set[str] = set()


def _once(texts: Sequence[str]) -> None:
    """A warning each, at the user's line, the first time in this process."""
    for text in texts:
        if text not in _said:
            _said.add(text)
            warnings.warn(f"polyc.InferenceSession: {text}", SessionWarning, stacklevel=3)
