"""Running a plan on a device: memory stays there, launches are made up once and recorded where the driver can."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.emit.gpu.arrays import DeviceArray, empty, on_a_device, to_device
from polyc.emit.gpu.devices import Device, DeviceError, LaunchSpec, Pointer, check_runs_on, launch_spec
from polyc.emit.gpu.program import Recorded
from polyc.graph_driver.backends.gpu.records import DeviceRecords
from polyc.graph_driver.execution.aliasing import arrays_in, owned
from polyc.graph_driver.execution.executor import Observer
from polyc.graph_driver.execution.frame import check_inputs, check_outputs
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Slot, Step
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ArgumentError, ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode
    from polyc.poly.target import GpuTarget


ON_DEVICE = ("kernel", "copy")


def _stretches(plan: Plan) -> list[tuple[int, list[int]]]:
    """Steps that follow one another on the device together, each step of the host alone; by the first's number."""
    found: list[tuple[int, list[int]]] = []
    for k, step in enumerate(plan.steps):
        together = step.kind in ON_DEVICE and k > 0 and plan.steps[k - 1].kind in ON_DEVICE
        if together:
            found[-1][1].append(k)
        else:
            found.append((k, [k]))
    return found


class _ArenaBytes:
    """The arena to poison: `arena[begin:end] = byte`."""

    def __init__(self, device: Device, memory: Any, size: int) -> None:
        self._device, self._memory, self._size = device, memory, size

    def __setitem__(self, where: slice, byte: int) -> None:
        begin, end, _ = where.indices(self._size)
        self._device.upload(Pointer(self._memory, begin), np.full(end - begin, byte, np.uint8))


class GpuExecutor:
    """A plan with its memory on one device. Runs from several threads take turns.

    The arena, the weights, inputs and outputs are allocated once, so every kernel's arguments are
    known before the first run. Host steps bring what they read to the host and put back what they make.
    The first run launches one kernel after another; after it, each stretch between host steps is recorded
    as a graph, which later runs replay. `recording` says what came of it.
    """

    def __init__(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], target: GpuTarget,
        kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]], cubins: Mapping[str, bytes], device: Device,
    ) -> None:  # fmt: skip
        """Raises `DeviceError` when the device does not run the code."""
        check_runs_on(device, target)
        self.plan, self._weights = plan, weights
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
        for symbol, (recorded, _) in kernels.items():
            handles |= device.load(recorded.text, target, cubins.get(symbol))
        self._records = DeviceRecords(plan, kernels, device)
        self._launches = [self._prepared(k, kernels, handles) for k in range(len(plan.steps))]
        self._stretches = _stretches(plan)
        self._graphs: dict[int, Any] = {}
        self.recording = ""

    def _nbytes(self, name: str) -> int:
        slot = self.plan.slots[name]
        return slot.nbytes if slot.dtype is not None else 0

    @property
    def arena(self) -> _ArenaBytes:
        """The memory of all runs (to poison)."""
        return _ArenaBytes(self.device, self._bases["arena"][0], self.plan.peak)

    def pointer(self, name: str) -> Pointer:
        """Where a tensor lies on the device."""
        place = self.plan.slots[name].place
        index = place.index if place.kind in ("input", "output") else 0
        return Pointer(self._bases[place.kind][index], place.offset)

    def _prepared(
        self, number: int, kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]], handles: Mapping[str, Any]
    ) -> list[LaunchSpec]:
        """The launches of the step of this number with addresses filled in."""
        step = self.plan.steps[number]
        if step.kind != "kernel":
            return []
        recorded, order = kernels[step.symbol]
        places = {name: self.pointer(arg) for name, arg in zip(order, step.args, strict=True)}
        if recorded.record:
            places[recorded.record] = self._records.pointer(number)
        return [
            launch_spec(
                c.kernel, handles[c.kernel.name], c.grid, [places[a] if isinstance(a, str) else a for a in c.arguments]
            )
            for c in recorded.sequence.calls
        ]

    # ---- running ----

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None, stream: Any = None
    ) -> dict[str, Any]:
        """Outputs by name; those named in `out` are written there. With an input on the device, outputs stay
        there, too, as new arrays, and are ready when `stream` is.

        Raises:
            ArgumentError: inputs or arrays of `out` do not fit.
            BoundsError: an index is outside of what it chooses from (with such indices to check, a run waits for the
                device).
        """
        given = {} if out is None else check_outputs(self.plan, out, self._weights)
        with self._lock:
            host, stays = self._place_inputs(inputs, stream)
            if stays and given:
                raise ArgumentError("out= takes NumPy arrays; with inputs on the device, results are new arrays there")
            for first, stretch in self._stretches:
                if first in self._graphs:
                    self.device.replay(self._graphs[first], stream)
                else:
                    for k in stretch:
                        self._step(k, self.plan.steps[k], host, stream)
            if not self.recording:
                self._record()
            self._records.check(stream)
            if stays:
                return {name: self._kept(name, host, stream) for name in self.plan.outputs}
            return {name: self._result(name, host, given.get(name), stream) for name in self.plan.outputs}

    def bind(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None
    ) -> Callable[[], dict[str, Any]]:
        """A run with these arrays, again and again; what does not fit is said by the first one."""
        return functools.partial(self.run, dict(inputs), None if out is None else dict(out))

    def run_eager(
        self, inputs: Mapping[str, Any], observer: Observer | None = None, before: Observer | None = None,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The same; `observer(number, step, look)` is called after each step is done, `before` before it."""
        return self.run_in_parts(inputs, cut(self.plan, frozenset(range(len(self.plan.steps)))), observer, before, out)

    def run_in_parts(
        self, inputs: Mapping[str, Any], parts: Parts, observer: Observer | None = None,
        before: Observer | None = None, out: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The same, where only the steps that run alone are waited for and observed; a part between them is replayed
        where it is one of the recorded stretches."""
        given = {} if out is None else check_outputs(self.plan, out, self._weights)
        with self._lock:
            host, _ = self._place_inputs(inputs, None)
            for what in parts.order:
                if what >= 0:
                    steps = list(parts.segments[what])
                    if steps[0] in self._graphs and (steps[0], steps) in self._stretches:
                        self.device.replay(self._graphs[steps[0]], None)
                        continue
                    for k in steps:
                        self._step(k, self.plan.steps[k], host)
                    continue
                k, step, watched = ~what, self.plan.steps[~what], ~what in parts.alone
                if before is not None and watched:
                    before(k, step, lambda name: self._value(name, host))
                self._step(k, step, host)
                if observer is not None and watched:
                    self.device.synchronize()
                    observer(k, step, lambda name: self._value(name, host))
            self._records.check()
            return {name: self._result(name, host, given.get(name)) for name in self.plan.outputs}

    def _place_inputs(self, inputs: Mapping[str, Any], stream: Any) -> tuple[dict[str, Any], bool]:
        """Bring all inputs to their places; those that stay on the host, and whether one was on the device."""
        there = {n: to_device(self.device, x) for n, x in inputs.items() if on_a_device(x)}
        shells = {n: np.broadcast_to(np.zeros((), x.dtype.np), x.shape) for n, x in there.items()}
        arrays = check_inputs(self.plan, {**inputs, **shells})
        host: dict[str, Any] = {}
        for name, array in zip(self.plan.inputs, arrays, strict=True):
            if self.plan.slots[name].dtype is None:
                host[name] = owned(array, arrays_in(array))  # operators hand out views of what they get
            elif name in there:
                self.device.copy(self.pointer(name), there[name].pointer, there[name].nbytes, stream)
            else:
                self.device.upload(self.pointer(name), array, stream)
        return host, bool(there)

    def _record(self) -> None:
        """Record the stretches of the device for later runs, if the driver can."""
        try:
            for first, stretch in self._stretches:
                if self.plan.steps[first].kind in ON_DEVICE:
                    self._graphs[first] = self.device.record(functools.partial(self._enqueue, stretch))
            self.recording = f"replayed as {len(self._graphs)} recorded graphs"
        except DeviceError as error:
            self._graphs.clear()
            self.recording = f"not recorded: {error}"

    def _enqueue(self, steps: Sequence[int], stream: Any) -> None:
        for k in steps:
            self._step(k, self.plan.steps[k], {}, stream)

    def _step(self, k: int, step: Step, host: dict[str, Any], stream: Any = None) -> None:
        if step.kind == "kernel":
            for spec in self._launches[k]:
                self.device.launch(spec, stream)
        elif step.kind == "copy":
            source, target = step.args
            self.device.copy(self.pointer(target), self.pointer(source), self.plan.slots[source].nbytes, stream)
        else:
            captures = {c: self._value(c, host, stream) for c in step.captures}
            results = self._hosts[step.index]([self._value(a, host, stream) for a in step.args], captures)
            for name, result in zip(step.results, results, strict=True):
                slot = self.plan.slots.get(name)
                if slot is not None:
                    self._store(step, slot, result, host, stream)
                else:  # no step reads it, but an observer may
                    host[name] = result

    def _store(self, step: Step, slot: Slot, result: Any, host: dict[str, Any], stream: Any) -> None:
        """Keep what a step of the host made: on the device when it is a tensor of known shape."""
        if slot.dtype is None:
            host[slot.name] = result
            return
        if np.shape(result) != slot.shape:
            raise ModelError(f"{step.label} made shape {list(np.shape(result))} for '{slot.name}', not {slot.shape}")
        array = np.ascontiguousarray(np.asarray(result).astype(BY_NAME[slot.dtype].np, copy=False))
        self.device.upload(self.pointer(slot.name), array, stream)

    def _value(self, name: str, host: Mapping[str, Any], stream: Any = None) -> Any:
        """A tensor as the host sees it."""
        slot = self.plan.slots.get(name)
        if slot is None or slot.dtype is None or slot.shape is None:
            return host[name]
        array = np.empty(slot.shape, BY_NAME[slot.dtype].np)
        self.device.download(array, self.pointer(name), stream)
        return array

    def _kept(self, name: str, host: Mapping[str, Any], stream: Any) -> Any:
        """An output as a new array of the device (what lives on the host stays there)."""
        slot = self.plan.slots[name]
        if slot.dtype is None or slot.shape is None:
            return host[name]
        made: DeviceArray = empty(self.device, tuple(slot.shape), BY_NAME[slot.dtype])
        self.device.copy(made.pointer, self.pointer(name), slot.nbytes, stream)
        return made

    def _result(self, name: str, host: Mapping[str, Any], given: np.ndarray | None, stream: Any = None) -> Any:
        value = self._value(name, host, stream)
        if given is None:
            text = isinstance(value, np.ndarray) and value.dtype.kind in "SU"
            return value.astype(object) if text else value
        given[...] = value
        return given
