"""Running a plan: `graph` (one native call per segment), `eager` (one call per step), and mixtures of both."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_driver.execution import entry
from graph_driver.execution.parts import Parts, cut
from graph_driver.importing.limits import check_memory
from graph_driver.memory import ALIGNMENT
from graph_driver.planning.plan import Place, Plan, Slot, Step
from poly.dtypes import BY_NAME
from poly.errors import ArgumentError, ModelError

if TYPE_CHECKING:
    from graph_driver.execution.control import ControlNode
    from graph_driver.execution.reference import HostNode

SEGMENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
Look = Callable[[str], np.ndarray]
Observer = Callable[[int, Step, Look], None]


def aligned_bytes(size: int) -> np.ndarray:
    """`size` uninitialised bytes at a multiple of 64. Raises `ModelError` when memory is short."""
    try:
        raw = np.empty(size + ALIGNMENT, np.uint8)
    except MemoryError:
        raise ModelError(f"not enough memory for {size} bytes") from None
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + size]


def address(array: np.ndarray) -> int:
    """Where the data starts."""
    return int(array.__array_interface__["data"][0])


class _Memory:
    """What one run at a time needs: an arena and the addresses that the program gets."""

    def __init__(self, plan: Plan, weights: np.ndarray, runtime: int) -> None:
        self.table_at = entry.FIRST_INPUT + len(plan.inputs) + len(plan.outputs)
        self.bases = (ctypes.c_void_p * (self.table_at + 1))()
        self.bases[entry.RUNTIME] = runtime or None
        self.bases[entry.WEIGHTS] = address(weights)
        self.at = ctypes.addressof(self.bases)
        self.arena = aligned_bytes(0)
        self.reserve(plan.peak)

    def sized(self, size: int, table: int | None) -> None:
        """Prepare for a run of other sizes: their table, and an arena of at least `size` bytes."""
        self.bases[self.table_at] = table
        self.reserve(size)

    def reserve(self, size: int) -> None:
        """Make the arena at least `size` bytes."""
        if len(self.arena) < size or self.bases[entry.ARENA] is None:
            self.arena = aligned_bytes(size)
            self.bases[entry.ARENA] = address(self.arena)


class Shared:
    """What the runs of one program have in common, at whatever sizes: idle arenas and the turn of the pool."""

    def __init__(self, runtime: int) -> None:
        self.idle: list[_Memory] = []
        self.lock = threading.Lock()
        self.turn = threading.Lock() if runtime else contextlib.nullcontext()


class _Bytes(np.ndarray):
    """Memory of a result. NumPy lets a view refer to what its array refers to, but only if that has the type of
    the array: by this type of its own, views of a result refer to the result."""


class _Results:
    """Arrays for one output, used again when nobody else holds them.

    A caller that keeps a result (or a view of it) keeps a reference to the array, so the count
    of references tells whether it may be handed out again; no copy and no page faults then.
    They start at cache lines: NumPy's own begin 16 bytes after one, and every other store of
    32 bytes would touch two.
    """

    KEPT = 4
    ALONE = 2  # the list's reference and `getrefcount`'s own

    def __init__(self, slot: Slot) -> None:
        assert slot.dtype is not None and slot.shape is not None
        self.shape, self.dtype, self.size = slot.shape, BY_NAME[slot.dtype].np, slot.nbytes
        self._arrays: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        """An array that nobody else refers to (the lock of the caller is held)."""
        kept = self._arrays
        for k in range(len(kept)):
            if sys.getrefcount(kept[k]) == self.ALONE:
                return kept[k]
        try:
            memory = _Bytes(self.size + ALIGNMENT, np.uint8)
        except MemoryError:
            raise ModelError(f"not enough memory for an output of shape {list(self.shape)}") from None
        made = np.ndarray(self.shape, self.dtype, memory, -address(memory) % ALIGNMENT)
        if len(kept) < self.KEPT:
            kept.append(made)
        return made


class Executor:
    """A plan with its memory and code, ready to run from any number of threads.

    Each run that is under way has an arena of its own (kept for later runs); runs that
    share a pool of threads take turns.
    """

    def __init__(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode], symbols: Mapping[str, int],
        runtime: int,
        table: np.ndarray | None = None, params: Sequence[int] = (), shared: Shared | None = None,
    ) -> None:  # fmt: skip
        """`weights` is the weights segment; `symbols` has addresses of all kernels and segments.

        With symbolic sizes: `table` has what the program reads of them, `params` where in it the parameters
        of each step begin, and `shared` is common to the executors of all sizes.
        """
        self.plan, self.addresses = plan, symbols
        self.table, self._params = table, params
        self._table_address = None if table is None else address(table)
        self.weights = weights
        check_memory("the model's arena", plan.peak)
        self._hosts = hosts
        self._runtime = runtime
        shared = shared or Shared(runtime)
        self._lock, self._turn, self._idle = shared.lock, shared.turn, shared.idle
        if not self._idle:
            self._idle.append(_Memory(plan, weights, runtime))
        self._segments = entry.segments(plan)
        self._native = [SEGMENT(symbols[entry.segment_name(k)]) for k in range(len(self._segments))]
        self._kernels = {s.symbol: KERNEL(symbols[s.symbol]) for s in plan.steps if s.kind == "kernel"}
        self._external_sizes = {
            k: (ctypes.c_int64 * len(s.sizes))(*s.sizes) for k, s in enumerate(plan.steps) if s.sizes
        }
        self._schedule = cut(plan, frozenset()).order
        slots = [plan.slots[n] for n in (*plan.inputs, *plan.outputs) if n in plan.slots]
        self._all_native = all(s.dtype is not None for s in slots) and not plan.python_steps
        if self._all_native:
            self._wanted = [
                (n, plan.slots[n], BY_NAME[plan.slots[n].dtype or ""].np, plan.slots[n].shape) for n in plan.inputs
            ]
            self._results = [(n, _Results(plan.slots[n])) for n in plan.outputs]

    @property
    def arena(self) -> np.ndarray:
        """The memory of the next run (to look at, or to poison in tests)."""
        self._idle[-1].reserve(self.plan.peak)
        return self._idle[-1].arena

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        """Outputs by name; those named in `out` are written there.

        Raises:
            ArgumentError: inputs or arrays of `out` do not fit.
        """
        if not self._all_native:
            return self._run_with_host(inputs, out)
        if len(inputs) != len(self._wanted):
            check_inputs(self.plan, inputs)
        arrays = []
        for name, slot, dtype, shape in self._wanted:
            value = inputs.get(name)
            if not (type(value) is np.ndarray and value.dtype == dtype and value.shape == shape and value.flags.carray):
                if value is None:
                    check_inputs(self.plan, inputs)
                value = _checked(slot, value)
            arrays.append(value)
        results = {}
        with self._lock:
            memory = self._idle.pop() if self._idle else None
            for name, pool in self._results:
                given = None if out is None else out.get(name)
                results[name] = pool.take() if given is None else _output(self.plan.slots[name], given)
        memory = memory or _Memory(self.plan, self.weights, self._runtime)
        if self.table is not None:
            memory.sized(self.plan.peak, self._table_address)
        bases, k = memory.bases, entry.FIRST_INPUT
        for array in arrays:
            bases[k] = array.__array_interface__["data"][0]
            k += 1
        for array in results.values():
            bases[k] = array.__array_interface__["data"][0]
            k += 1
        with self._turn:
            for segment in self._native:
                segment(memory.at)
        self._idle.append(memory)
        return results

    def _run_with_host(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None) -> dict[str, Any]:
        arrays = check_inputs(self.plan, inputs)
        with self._memory() as memory, self._turn:
            frame = self._frame(memory, arrays)
            for what in self._schedule:
                if what < 0:
                    frame.host(self.plan.steps[~what], self._hosts)
                else:
                    self._native[what](memory.at)
            results = frame.results()
        for name, target in (out or {}).items():
            np.copyto(_output(self.plan.slots[name], target), results[name])
            results[name] = target
        return results

    @contextlib.contextmanager
    def _memory(self) -> Iterator[_Memory]:
        """An idle arena, or a new one."""
        with self._lock:
            memory = self._idle.pop() if self._idle else None
        memory = memory or _Memory(self.plan, self.weights, self._runtime)
        if self.table is not None:
            memory.sized(self.plan.peak, self._table_address)
        try:
            yield memory
        finally:
            self._idle.append(memory)

    def run_eager(
        self, inputs: Mapping[str, Any], observer: Observer | None = None, before: Observer | None = None
    ) -> dict[str, Any]:
        """The same, step by step; `observer(number, step, look)` is called after each step, `before` before it.

        `look(name)` gives a copy of any tensor that is in memory at that point.
        """
        return self.run_in_parts(inputs, cut(self.plan, frozenset(range(len(self.plan.steps)))), observer, before)

    def run_in_parts(
        self, inputs: Mapping[str, Any], parts: Parts, observer: Observer | None = None,
        before: Observer | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The same, with native calls between the steps that run alone; only those are observed."""
        arrays = check_inputs(self.plan, inputs)
        with self._memory() as memory, self._turn:
            frame = self._frame(memory, arrays)
            for what in parts.order:
                if what >= 0:
                    parts.native[what](memory.at)
                elif ~what in parts.alone:
                    self._alone(~what, frame, observer, before)
                else:
                    frame.host(self.plan.steps[~what], self._hosts)
            return frame.results()

    def _alone(self, k: int, frame: _Frame, observer: Observer | None, before: Observer | None) -> None:
        """One step by itself, observed before and after."""
        step, pointers = self.plan.steps[k], None
        if step.kind == "kernel":  # made ready first: not part of the step's time
            pointers = (ctypes.c_void_p * len(step.args))(*[frame.pointer(a) for a in step.args])
        if before is not None:
            before(k, step, lambda name: np.array(frame.value(name)))
        if pointers is not None:
            self._kernels[step.symbol](ctypes.addressof(pointers), self._sizes(k), self._runtime or None)
        elif step.kind in ("host", "control"):
            frame.host(step, self._hosts)
        else:
            source, target = (frame.array(a) for a in step.args)
            np.copyto(target.reshape(source.shape), source)
        if observer is not None:
            observer(k, step, lambda name: np.array(frame.value(name)))

    def _frame(self, memory: _Memory, arrays: Sequence[Any]) -> _Frame:
        outputs = []
        for name in self.plan.outputs:
            slot = self.plan.slots.get(name)
            static = slot is not None and slot.dtype is not None
            outputs.append(aligned_bytes(_output_bytes(slot) if static and slot is not None else 0))
        slots = [self.plan.slots.get(n) for n in self.plan.inputs]
        values = [address(a) if s is not None and s.dtype else None for a, s in zip(arrays, slots, strict=True)]
        values += [address(a) for a in outputs]
        for k, v in enumerate(values, entry.FIRST_INPUT):
            memory.bases[k] = v
        return _Frame(self.plan, memory.arena, self.weights, arrays, outputs, self.table)

    def _sizes(self, step: int) -> int | None:
        """Where the parameters of a kernel are."""
        if self.plan.steps[step].sizes:
            return ctypes.addressof(self._external_sizes[step])
        if self._table_address is None or self._params[step] < 0:
            return None
        return self._table_address + 8 * self._params[step]


def _output(slot: Slot, array: np.ndarray) -> np.ndarray:
    """An array given for an output, checked."""
    if slot.dtype is None:
        raise ArgumentError(f"output '{slot.name}' has no fixed size: it cannot be written to a given array")
    want = BY_NAME[slot.dtype].np
    if type(array) is not np.ndarray or array.dtype != want or array.shape != slot.shape:
        raise ArgumentError(f"the array for output '{slot.name}' must be {want} of shape {slot.shape}")
    if not array.flags.carray:
        raise ArgumentError(f"the array for output '{slot.name}' must be contiguous and writeable")
    return array


def _output_bytes(slot: Slot) -> int:
    return max(slot.nbytes, 1)


class _Frame:
    """One run's memory: where each slot's bytes are now, and the host's values."""

    def __init__(
        self, plan: Plan, arena: np.ndarray, weights: np.ndarray,
        inputs: Sequence[Any], outputs: Sequence[np.ndarray], table: np.ndarray | None,
    ) -> None:  # fmt: skip
        self.plan, self.arena, self.weights = plan, arena, weights
        self.table = table
        self.inputs, self.outputs = inputs, outputs
        self.host_values: dict[str, Any] = {
            n: v for n, v in zip(plan.inputs, inputs, strict=True) if plan.slots[n].dtype is None
        }

    def _bytes(self, place: Place, size: int) -> np.ndarray:
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
        """The tensor's memory as an array (no copy)."""
        slot = self.plan.slots[name]
        assert slot.dtype is not None and slot.shape is not None
        return self._bytes(slot.place, slot.nbytes).view(BY_NAME[slot.dtype].np).reshape(slot.shape)

    def pointer(self, name: str) -> int:
        """Address of the tensor's first byte."""
        slot = self.plan.slots[name]
        return address(self._bytes(slot.place, slot.nbytes))

    def value(self, name: str) -> Any:
        """The tensor as a host operator takes it."""
        slot = self.plan.slots.get(name)
        if slot is None or slot.dtype is None:
            return self.host_values[name]
        return self.array(name)

    def host(self, step: Step, hosts: Sequence[HostNode | ControlNode]) -> None:
        """Run one step that needs Python; results with known shapes are stored in their place."""
        captures = {c: self.value(c) for c in step.captures}
        results = hosts[step.index]([self.value(a) for a in step.args], captures)
        for name, result in zip(step.results, results, strict=True):
            slot = self.plan.slots.get(name)
            if slot is None or slot.dtype is None:  # without a slot no step reads it, but an observer may
                self.host_values[name] = result
                continue
            if np.shape(result) != slot.shape:
                raise ModelError(f"{step.label} made shape {list(np.shape(result))} for '{name}', not {slot.shape}")
            np.copyto(self.array(name), result, casting="unsafe")

    def results(self) -> dict[str, Any]:
        """The graph's outputs."""
        out: dict[str, Any] = {}
        for k, name in enumerate(self.plan.outputs):
            slot = self.plan.slots[name]
            if slot.dtype is None or slot.shape is None:
                value = self.host_values[name]
                text = isinstance(value, np.ndarray) and value.dtype.kind in "SU"
                out[name] = value.astype(object) if text else value  # ONNX's string tensors are arrays of objects
            else:
                out[name] = self.outputs[k][: slot.nbytes].view(BY_NAME[slot.dtype].np).reshape(slot.shape)
        return out


def check_inputs(plan: Plan, inputs: Mapping[str, Any]) -> list[Any]:
    """Inputs in the plan's order, as contiguous arrays; values of the host (strings,
    sequences) as they are.

    Raises:
        ArgumentError: an input is missing or unknown, or has another dtype or shape.
    """
    unknown = [n for n in inputs if n not in plan.inputs]
    if unknown:
        raise ArgumentError(f"the model has no input '{unknown[0]}'; it has {_listed(plan.inputs)}")
    missing = [n for n in plan.inputs if n not in inputs]
    if missing:
        raise ArgumentError(f"input '{missing[0]}' is missing; the model has {_listed(plan.inputs)}")
    return [_checked(plan.slots[name], inputs[name]) for name in plan.inputs]


def _checked(slot: Slot, value: Any) -> Any:
    if slot.dtype is None:
        return value
    want = BY_NAME[slot.dtype].np
    array = np.asarray(value)
    if array.dtype != want:
        raise ArgumentError(f"input '{slot.name}' has dtype {array.dtype}, the model wants {want}")
    if array.shape != slot.shape:
        raise ArgumentError(f"input '{slot.name}' has shape {array.shape}, the model was compiled for {slot.shape}")
    return np.require(array, requirements=["C", "A"])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{n}'" for n in names) or "none"
