"""Running a plan on a device: memory stays there, launches are made up once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from emit.gpu.devices import Device, LaunchSpec, Pointer, launch_spec
from emit.gpu.program import Recorded
from graph_driver.execute import Observer, check_inputs
from graph_driver.plan import Plan, Slot, Step
from poly.dtypes import BY_NAME
from poly.errors import ArgumentError, ModelError
from poly.target import GpuTarget

if TYPE_CHECKING:
    from graph_driver.control import ControlNode
    from graph_driver.reference import HostNode


class GpuExecutor:
    """A plan with its memory on one device. Runs from several threads take turns.

    The arena, the weights, inputs and outputs are allocated once, so every kernel's arguments are
    known before the first run. Host steps bring what they read to the host and put back what they make.
    """

    def __init__(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode],
        kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]], device: Device, target: GpuTarget,
    ) -> None:  # fmt: skip
        """`kernels`: by symbol, and the names of their arrays in the order of a step's arguments."""
        self.plan = plan
        self.device = device
        self._hosts = hosts
        self._lock = threading.Lock()
        self._bases = {
            "arena": [device.allocate(plan.peak)],
            "weight": [device.allocate(weights.nbytes)],
            "input": [device.allocate(self._nbytes(n)) for n in plan.inputs],
            "output": [device.allocate(self._nbytes(n)) for n in plan.outputs],
        }
        device.upload(Pointer(self._bases["weight"][0]), weights)
        handles: dict[str, Any] = {}
        for recorded, _ in kernels.values():
            handles |= device.load(recorded.text, target)
        self._launches = [self._prepared(s, kernels, handles) for s in plan.steps]

    def _nbytes(self, name: str) -> int:
        slot = self.plan.slots[name]
        return slot.nbytes if slot.dtype is not None else 0

    def pointer(self, name: str) -> Pointer:
        """Where a tensor lies on the device."""
        place = self.plan.slots[name].place
        index = place.index if place.kind in ("input", "output") else 0
        return Pointer(self._bases[place.kind][index], place.offset)

    def _prepared(
        self, step: Step, kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]], handles: Mapping[str, Any]
    ) -> list[LaunchSpec]:
        """The launches of a step with addresses filled in."""
        if step.kind != "kernel":
            return []
        recorded, order = kernels[step.symbol]
        places = {name: self.pointer(arg) for name, arg in zip(order, step.args, strict=True)}
        return [
            launch_spec(
                c.kernel, handles[c.kernel.name], c.grid, [places[a] if isinstance(a, str) else a for a in c.arguments]
            )
            for c in recorded.sequence.calls
        ]

    # ---- running ----

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        """Outputs by name; those named in `out` are written there.

        Raises:
            ArgumentError: inputs or arrays of `out` do not fit.
        """
        return self.run_eager(inputs, out=out)

    def run_eager(
        self, inputs: Mapping[str, Any], observer: Observer | None = None, before: Observer | None = None,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The same; `observer(number, step, look)` is called after each step, `before` before it."""
        arrays = check_inputs(self.plan, inputs)
        with self._lock:
            host: dict[str, Any] = {}
            for name, array in zip(self.plan.inputs, arrays, strict=True):
                if self.plan.slots[name].dtype is None:
                    host[name] = array
                else:
                    self.device.upload(self.pointer(name), array)
            for k, step in enumerate(self.plan.steps):
                if before is not None:
                    before(k, step, lambda name: self._value(name, host))
                self._step(k, step, host)
                if observer is not None:
                    observer(k, step, lambda name: self._value(name, host))
            return {name: self._result(name, host, (out or {}).get(name)) for name in self.plan.outputs}

    def _step(self, k: int, step: Step, host: dict[str, Any]) -> None:
        if step.kind == "kernel":
            for spec in self._launches[k]:
                self.device.launch(spec)
        elif step.kind == "copy":
            source, target = step.args
            self.device.copy(self.pointer(target), self.pointer(source), self.plan.slots[source].nbytes)
        else:
            captures = {c: self._value(c, host) for c in step.captures}
            results = self._hosts[step.index]([self._value(a, host) for a in step.args], captures)
            for name, result in zip(step.results, results, strict=True):
                slot = self.plan.slots.get(name)
                if slot is not None:
                    self._store(step, slot, result, host)

    def _store(self, step: Step, slot: Slot, result: Any, host: dict[str, Any]) -> None:
        """Keep what a step of the host made: on the device when it is a tensor of known shape."""
        if slot.dtype is None:
            host[slot.name] = result
            return
        if np.shape(result) != slot.shape:
            raise ModelError(f"{step.label} made shape {list(np.shape(result))} for '{slot.name}', not {slot.shape}")
        array = np.ascontiguousarray(np.asarray(result).astype(BY_NAME[slot.dtype].np, copy=False))
        self.device.upload(self.pointer(slot.name), array)

    def _value(self, name: str, host: Mapping[str, Any]) -> Any:
        """A tensor as the host sees it."""
        slot = self.plan.slots[name]
        if slot.dtype is None or slot.shape is None:
            return host[name]
        array = np.empty(slot.shape, BY_NAME[slot.dtype].np)
        self.device.download(array, self.pointer(name))
        return array

    def _result(self, name: str, host: Mapping[str, Any], given: np.ndarray | None) -> Any:
        value = self._value(name, host)
        if given is None:
            text = isinstance(value, np.ndarray) and value.dtype.kind in "SU"
            return value.astype(object) if text else value
        if type(given) is not np.ndarray or given.dtype != value.dtype or given.shape != value.shape:
            raise ArgumentError(f"the array for output '{name}' must be {value.dtype} of shape {value.shape}")
        given[...] = value
        return given
