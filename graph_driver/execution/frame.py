"""One run's tensors: where the bytes of each are, the host's values, and whether the caller's arrays fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.execution.aliasing import Extents, arrays_in, check_apart, owned
from polyc.graph_driver.execution.run_memory import address
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Slot, Step
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ArgumentError, ModelError
from polyc.poly.host_arrays import as_array, lends
from polyc.poly.rewriting.stored import laid_out_shape, taken_out

if TYPE_CHECKING:
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode


def output_array(slot: Slot[int], array: np.ndarray) -> np.ndarray:
    """An array given for an output, checked.

    Raises:
        ArgumentError: another dtype or shape, not contiguous or not writeable, or an output of no fixed size.
    """
    if slot.dtype is None:
        raise ArgumentError(f"output '{slot.name}' has no fixed size: it cannot be written to a given array")
    want = BY_NAME[slot.dtype].np
    if type(array) is not np.ndarray and lends(array):
        array = as_array(array, f"the array for output '{slot.name}'", written=True)
    if type(array) is not np.ndarray or array.dtype != want or array.shape != slot.shape:
        raise ArgumentError(f"the array for output '{slot.name}' must be {want} of shape {slot.shape}")
    if not array.flags.carray:
        raise ArgumentError(f"the array for output '{slot.name}' must be contiguous and writeable")
    return array


def output_bytes(slot: Slot[int]) -> int:
    """Bytes of the array for an output: one without elements has an address, too."""
    return max(slot.nbytes, 1)


class Frame:
    """One run's memory: where each slot's bytes are now, and the host's values."""

    def __init__(
        self, plan: Plan[int], arena: np.ndarray, weights: np.ndarray,
        inputs: Sequence[Any], outputs: Sequence[np.ndarray], table: np.ndarray | None,
    ) -> None:  # fmt: skip
        self.plan, self.arena, self.weights = plan, arena, weights
        self.table = table
        self.inputs, self.outputs = inputs, outputs
        self.host_values: dict[str, Any] = {
            n: v for n, v in zip(plan.inputs, inputs, strict=True) if plan.slots[n].dtype is None
        }

    def _bytes(self, slot: Slot[int]) -> np.ndarray:
        place, size = slot.place, slot.nbytes
        if place.kind == "arena":
            return self.arena[place.offset : place.offset + size]
        if place.kind == "weight":
            return self.weights[place.offset : place.offset + size]
        if place.kind == "table":
            assert self.table is not None
            return self.table.view(np.uint8)[place.offset : place.offset + size]
        if place.kind == "input":
            return self.inputs[place.index].reshape(-1).view(np.uint8)[:size]
        return self.outputs[place.index][:size]

    def array(self, name: str) -> np.ndarray:
        """The tensor's memory as an array (no copy, unless kernels store it by a layout)."""
        slot = self.plan.slots[name]
        assert slot.dtype is not None and slot.shape is not None
        if slot.layout is not None:
            stored = self._bytes(slot).view(BY_NAME[slot.dtype].np)
            return taken_out(stored.reshape(laid_out_shape(slot.shape, slot.layout)), slot.shape, slot.layout)
        return self._bytes(slot).view(BY_NAME[slot.dtype].np).reshape(slot.shape)

    def bytes_of(self, name: str) -> np.ndarray:
        """The tensor's memory as it lies there."""
        slot = self.plan.slots[name]
        return self._bytes(slot)

    def pointer(self, name: str) -> int:
        """Address of the tensor's first byte."""
        return address(self.bytes_of(name))

    def value(self, name: str) -> Any:
        """The tensor as a host operator takes it."""
        slot = self.plan.slots.get(name)
        if slot is None or slot.dtype is None:
            return self.host_values[name]
        return self.array(name)

    def host(self, step: Step[int], hosts: Sequence[HostNode | ControlNode | PythonCall]) -> None:
        """Run one step that needs Python; results with known shapes are stored in their place.

        Raises:
            ModelError: a result has another shape than the plan says.
        """
        node = hosts[step.index]
        if getattr(node, "message", None) is not None:  # to other ranks: reads and writes arrays where they lie
            write: Any = getattr(node, "write")  # noqa: B009 - control flow has no messages
            write([self.value(a) for a in step.args], [self.array(r) for r in step.results])
            return
        results = node([self.value(a) for a in step.args], Captured(self, step.captures))
        for name, result in zip(step.results, results, strict=True):
            slot = self.plan.slots.get(name)
            if slot is None or slot.dtype is None:  # without a slot no step reads it, but an observer may
                self.host_values[name] = owned(result, self._shared())
                continue
            if np.shape(result) != slot.shape:
                raise ModelError(f"{step.label} made shape {list(np.shape(result))} for '{name}', not {slot.shape}")
            np.copyto(self.array(name), result, casting="unsafe")

    def _shared(self) -> Iterator[np.ndarray]:
        """All memory that is not a value's own: that of the plan, and of the caller."""
        yield from (self.arena, self.weights, *self.outputs)
        for value in self.inputs:
            yield from arrays_in(value)

    def results(self) -> dict[str, Any]:
        """The graph's outputs."""
        out: dict[str, Any] = {}
        for k, name in enumerate(self.plan.outputs):
            slot = self.plan.slots[name]
            if slot.dtype is None or slot.shape is None:
                value = owned(self.host_values[name], self._shared())
                text = isinstance(value, np.ndarray) and value.dtype.kind in "SU"
                out[name] = value.astype(object) if text else value  # ONNX's string tensors are arrays of objects
            else:
                out[name] = self.outputs[k][: slot.nbytes].view(BY_NAME[slot.dtype].np).reshape(slot.shape)
        return out


class Captured(Mapping[str, Any]):
    """What the subgraphs of a step read of the graph around them, looked up when asked for: compiled bodies have the
    constants among it (the weights) themselves."""

    def __init__(self, frame: Frame, names: Sequence[str]) -> None:
        self._frame, self._names = frame, names

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._frame.value(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def check_outputs(
    plan: Plan[int], out: Mapping[str, np.ndarray], weights: np.ndarray, extents: Extents | None = None
) -> dict[str, np.ndarray]:
    """The arrays given for outputs, checked before anything is written.

    Raises:
        ArgumentError: there is no such output, an array does not fit it (`output_array`), two of them overlap, or one
            lies in `weights`.
    """
    if not isinstance(out, Mapping):
        raise ArgumentError(f"out= is a dict of arrays by name ({_listed(plan.outputs)}), not {type(out).__name__}")
    for name in out:
        if name not in plan.outputs:
            raise ArgumentError(f"the model has no output '{name}'; it has {_listed(plan.outputs)}")
    given = {name: output_array(plan.slots[name], array) for name, array in out.items()}
    check_apart(given, weights, extents or Extents())
    return given


def check_inputs(plan: Plan[int], inputs: Mapping[str, Any]) -> list[Any]:
    """Inputs in the plan's order, as contiguous arrays; values of the host (strings,
    sequences) as they are.

    Raises:
        ArgumentError: an input is missing or unknown, or has another dtype or shape.
    """
    if not isinstance(inputs, Mapping):
        kind = type(inputs).__name__
        raise ArgumentError(f"inputs are a dict of arrays by name ({_listed(plan.inputs)}), not {kind}")
    unknown = [n for n in inputs if n not in plan.inputs]
    if unknown:
        raise ArgumentError(f"the model has no input '{unknown[0]}'; it has {_listed(plan.inputs)}")
    missing = [n for n in plan.inputs if n not in inputs]
    if missing:
        raise ArgumentError(f"input '{missing[0]}' is missing; the model has {_listed(plan.inputs)}")
    return [checked(plan.slots[name], inputs[name]) for name in plan.inputs]


def checked(slot: Slot[int], value: Any) -> Any:
    """One input as a contiguous array; a value of the host as it is. Raises `ArgumentError`."""
    if slot.dtype is None:
        return value
    want = BY_NAME[slot.dtype].np
    array = as_array(value, f"input '{slot.name}'") if lends(value) else np.asarray(value)
    if array.dtype != want:
        raise ArgumentError(f"input '{slot.name}' has dtype {array.dtype}, the model wants {want}")
    if array.shape != slot.shape:
        raise ArgumentError(f"input '{slot.name}' has shape {array.shape}, the model was compiled for {slot.shape}")
    return np.require(array, requirements=["C", "A"])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{n}'" for n in names) or "none"
