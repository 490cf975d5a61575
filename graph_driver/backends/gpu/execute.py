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
from polyc.graph_driver.backends.gpu.natives import Natives
from polyc.graph_driver.backends.gpu.records import DeviceRecords
from polyc.graph_driver.backends.gpu.transfers import Side, Transfer, Valid, transfers, written
from polyc.graph_driver.execution.aliasing import arrays_in, owned
from polyc.graph_driver.execution.executor import Observer
from polyc.graph_driver.execution.frame import Frame, check_inputs, check_outputs, output_bytes
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.execution.run_memory import aligned_bytes
from polyc.graph_driver.execution.violations import Records, steps_with_records
from polyc.graph_driver.planning.plan import Plan
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ArgumentError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode
    from polyc.poly.target import GpuTarget


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
    known before the first run. Steps of the host, kernels of its CPU among them, work on a copy of this memory; what
    has to go from one to the other, and when, is known, too (`transfers`).
    The first run launches one kernel after another; after it, each stretch between host steps is recorded
    as a graph, which later runs replay. `recording` says what came of it.
    """

    def __init__(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], target: GpuTarget,
        kernels: Mapping[str, tuple[Recorded, tuple[str, ...]]], cubins: Mapping[str, bytes], device: Device,
        natives: Natives,
    ) -> None:  # fmt: skip
        """Raises `DeviceError` when the device does not run the code."""
        check_runs_on(device, target)
        self.plan, self._weights = plan, weights
        self.device = device
        self._hosts, self._natives = hosts, natives
        self._lock = threading.Lock()
        self.transfers = transfers(plan, natives.symbols)
        self._host_arena = aligned_bytes(plan.peak if "host" in self.transfers.sides else 0)
        self._host_records = Records(plan, steps_with_records(plan))
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
        self._stretches = stretches(self.transfers.sides)
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
        if step.symbol not in kernels:
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
            frame, stays = self._place_inputs(inputs, stream)
            if stays and given:
                raise ArgumentError("out= takes NumPy arrays; with inputs on the device, results are new arrays there")
            for first, stretch in self._stretches:
                self._bring(first, frame, stream)
                if first in self._graphs:
                    self.device.replay(self._graphs[first], stream)
                else:
                    for k in stretch:
                        self._step(k, frame, stream)
            if not self.recording:
                self._record(frame)
            return self._results(frame, given, stays, stream)

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
        valid = Valid(self.plan)
        with self._lock:
            frame, _ = self._place_inputs(inputs, None)
            look = functools.partial(self._look, valid, frame)
            for what in parts.order:
                steps = list(parts.segments[what]) if what >= 0 else [~what]
                watched = what < 0 and ~what in parts.alone
                if before is not None and watched:
                    before(steps[0], self.plan.steps[steps[0]], look)
                if what >= 0 and steps[0] in self._graphs and (steps[0], steps) in self._stretches:
                    self._bring(steps[0], frame, None)
                    self.device.replay(self._graphs[steps[0]], None)
                else:
                    for k in steps:
                        self._bring(k, frame, None)
                        self._step(k, frame)
                for k in steps:
                    for name in written(self.plan, self.plan.steps[k]):
                        valid.make(name, self.transfers.sides[k])
                if observer is not None and watched:
                    self.device.synchronize()
                    observer(steps[0], self.plan.steps[steps[0]], look)
            return self._results(frame, given, False, None)

    def _place_inputs(self, inputs: Mapping[str, Any], stream: Any) -> tuple[Frame, bool]:
        """Bring all inputs to their places: the host's memory of this run, and whether one was on the device."""
        there = {n: to_device(self.device, x) for n, x in inputs.items() if on_a_device(x)}
        shells = {n: np.broadcast_to(np.zeros((), x.dtype.np), x.shape) for n, x in there.items()}
        arrays = check_inputs(self.plan, {**inputs, **shells})
        for k, name in enumerate(self.plan.inputs):
            if self.plan.slots[name].dtype is None:
                arrays[k] = owned(arrays[k], arrays_in(arrays[k]))  # operators hand out views of what they get
            elif name in there:
                self.device.copy(self.pointer(name), there[name].pointer, there[name].nbytes, stream)
                arrays[k] = np.empty(arrays[k].shape, arrays[k].dtype)
                if k in self.transfers.reads_input["host"]:
                    self.device.download(arrays[k], self.pointer(name), stream)
            elif k in self.transfers.reads_input["device"]:
                self.device.upload(self.pointer(name), arrays[k], stream)
        slots = [self.plan.slots[n] for n in self.plan.outputs]
        outputs = [aligned_bytes(0 if s.dtype is None else output_bytes(s)) for s in slots]
        return Frame(self.plan, self._host_arena, self._weights, arrays, outputs, None), bool(there)

    def _record(self, frame: Frame) -> None:
        """Record the stretches of the device for later runs, if the driver can."""
        try:
            for first, stretch in self._stretches:
                if self.transfers.sides[first] == "device":
                    self._graphs[first] = self.device.record(functools.partial(self._enqueue, stretch, frame))
            self.recording = f"replayed as {len(self._graphs)} recorded graphs"
        except DeviceError as error:
            self._graphs.clear()
            self.recording = f"not recorded: {error}"

    def _enqueue(self, steps: Sequence[int], frame: Frame, stream: Any) -> None:
        for k in steps:
            self._step(k, frame, stream)

    def _step(self, k: int, frame: Frame, stream: Any = None) -> None:
        """One step, on the side where it runs."""
        step, here = self.plan.steps[k], self.transfers.sides[k] == "host"
        if step.kind == "kernel" and here:
            self._natives.run(step.symbol, [frame.bytes_of(a) for a in step.args])
        elif step.kind == "kernel":
            for spec in self._launches[k]:
                self.device.launch(spec, stream)
        elif step.kind == "copy":
            source, target = step.args
            if here:
                np.copyto(frame.bytes_of(target)[: self.plan.slots[source].nbytes], frame.bytes_of(source))
            else:
                self.device.copy(self.pointer(target), self.pointer(source), self.plan.slots[source].nbytes, stream)
        else:
            frame.host(step, self._hosts)

    # ---- between the two ----

    def _bring(self, first: int, frame: Frame, stream: Any) -> None:
        """What a stretch needs from the other side."""
        for transfer in self.transfers.before.get(first, ()):
            self._transfer(transfer, frame, stream)

    def _transfer(self, transfer: Transfer, frame: Frame, stream: Any) -> None:
        kind, index = transfer.memory
        memory = frame.arena if kind == "arena" else frame.outputs[index]
        part, place = memory[transfer.begin : transfer.end], Pointer(self._bases[kind][index], transfer.begin)
        if transfer.to == "host":
            self.device.download(part, place, stream)
        else:
            self.device.upload(place, part, stream)

    def _look(self, valid: Valid, frame: Frame, name: str) -> Any:
        """A copy of a tensor as it is now."""
        slot = self.plan.slots.get(name)
        if slot is None or slot.dtype is None or slot.shape is None:
            return frame.value(name)
        if slot.place.kind in ("input", "weight") or valid.valid_on(name, "host"):
            if slot.place.kind != "arena" or not valid.valid_on(name, "device"):
                return np.array(frame.value(name))
        array = np.empty(slot.shape, BY_NAME[slot.dtype].np)
        self.device.download(array, self.pointer(name))
        return array

    def _results(self, frame: Frame, given: Mapping[str, np.ndarray], stays: bool, stream: Any) -> dict[str, Any]:
        """The outputs where they are wanted. Raises `BoundsError`: a step has something to tell."""
        self._host_records.check(frame.arena)
        self._records.check(stream)
        for transfer in self.transfers.after["device" if stays else "host"]:
            self._transfer(transfer, frame, stream)
        if stays:
            return {name: self._kept(name, frame, stream) for name in self.plan.outputs}
        results = frame.results()
        for name, array in given.items():
            np.copyto(array, results[name])
        return {**results, **given}

    def _kept(self, name: str, frame: Frame, stream: Any) -> Any:
        """An output as a new array of the device (what lives on the host stays there)."""
        slot = self.plan.slots[name]
        if slot.dtype is None or slot.shape is None:
            return frame.value(name)
        made: DeviceArray = empty(self.device, tuple(slot.shape), BY_NAME[slot.dtype])
        self.device.copy(made.pointer, self.pointer(name), slot.nbytes, stream)
        return made


def stretches(sides: Sequence[Side]) -> list[tuple[int, list[int]]]:
    """Steps that follow one another on the device together, each step of the host alone; by the first's number."""
    found: list[tuple[int, list[int]]] = []
    for k, side in enumerate(sides):
        if side == "device" and k > 0 and sides[k - 1] == "device":
            found[-1][1].append(k)
        else:
            found.append((k, [k]))
    return found
