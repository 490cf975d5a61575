"""Running a plan: `graph` (one native call per segment), `eager` (one call per step), and mixtures of both."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.execution import entry
from polyc.graph_driver.execution.aliasing import Extents, check_bound, dead_before, separated
from polyc.graph_driver.execution.executor import Observer
from polyc.graph_driver.execution.frame import Frame, check_inputs, check_outputs, checked, output_bytes
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.execution.run_memory import Program, Results, RunMemory, Shared, address, aligned_bytes
from polyc.graph_driver.execution.stopping import Stopping
from polyc.graph_driver.execution.violations import Records, steps_with_records
from polyc.graph_driver.graph.limits import check_memory
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Step
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ArgumentError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode

SEGMENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class NativeExecutor:
    """A plan with its memory and code, ready to run from any number of threads.

    Each run that is under way has an arena of its own (kept for later runs); runs that
    share a pool of threads take turns.
    """

    def __init__(
        self, plan: Plan[int], weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall],
        symbols: Mapping[str, int], runtime: int, table: np.ndarray | None = None, shared: Shared | None = None,
        notes: list[str] | None = None,
    ) -> None:  # fmt: skip
        """`weights` is the weights segment; `symbols` has addresses of all kernels and segments; what a run had to do
        beside the plan is added to `notes`.

        With symbolic sizes: `table` has what the program reads of them, and `shared` is common to the executors of all
        sizes.
        """
        self.plan, self.addresses = plan, symbols
        self.table = table
        self._table_address = None if table is None else address(table)
        self.weights = weights
        check_memory("the model's arena", plan.peak)
        self._hosts = hosts
        self._stopping = Stopping(plan.peak + plan.weight_bytes)
        self._runtime = runtime
        self._notes = [] if notes is None else notes
        self.shared = shared = shared or Shared(runtime)
        self._lock, self._turn, self._idle = shared.lock, shared.turn, shared.idle
        if not self._idle:
            self._idle.append(RunMemory(plan, weights, runtime))
        shared.program = program = shared.program or self._program(symbols)
        self._native, self._kernels, self._schedule = program.native, program.kernels, program.order
        self._step_sizes: dict[int, ctypes.Array[ctypes.c_int64]] = {}
        self._records = Records(plan, program.records)
        slots = [plan.slots[n] for n in (*plan.inputs, *plan.outputs) if n in plan.slots]
        self._all_native = all(s.dtype is not None for s in slots) and not program.python
        if self._all_native:
            self._wanted = [
                (n, plan.slots[n], BY_NAME[plan.slots[n].dtype or ""].np, plan.slots[n].shape) for n in plan.inputs
            ]
            self._results = own_results(plan)

    def _program(self, symbols: Mapping[str, int]) -> Program:
        """Segments and kernels, and what to do in turn: the same at all sizes."""
        parts = cut(self.plan, frozenset())
        native = [SEGMENT(symbols[entry.segment_name(k)]) for k in range(len(parts.segments))]
        kernels = {s.symbol: KERNEL(symbols[s.symbol]) for s in self.plan.steps if s.kind == "kernel"}
        records, python = steps_with_records(self.plan), bool(self.plan.python_steps)
        return Program(native, kernels, parts.order, records, python)

    @property
    def arena(self) -> np.ndarray:
        """The memory of the next run (to look at, or to poison in tests)."""
        self._idle[-1].reserve(self.plan.peak)
        return self._idle[-1].arena

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None, stream: Any = None
    ) -> dict[str, Any]:
        """Outputs by name; those named in `out` are written there.

        Raises:
            ArgumentError: inputs or arrays of `out` do not fit, or `stream` is given (it is for models on a GPU).
            BoundsError: an index is outside of what it chooses from.
        """
        if stream is not None:
            raise ArgumentError("stream= is for models on a GPU: this one runs on a CPU")
        extents = None if out is None else Extents()
        given = {} if out is None else check_outputs(self.plan, out, self.weights, extents)
        if not self._all_native:
            return self._run_with_host(inputs, given)
        if type(inputs) is not dict or len(inputs) != len(self._wanted):
            check_inputs(self.plan, inputs)
        arrays = []
        for name, slot, dtype, shape in self._wanted:
            value = inputs.get(name)
            if not (type(value) is np.ndarray and value.dtype == dtype and value.shape == shape and value.flags.carray):
                if value is None:
                    check_inputs(self.plan, inputs)
                value = checked(slot, value)
            arrays.append(value)
        results = {}
        if extents is None:
            places = [array.__array_interface__["data"][0] for array in arrays]  # no calls: for the smallest models
        else:
            arrays = self._separated(arrays, given, extents)
            places = [extents.of(array)[0] for array in arrays]
        with self._lock:
            memory = self._idle.pop() if self._idle else None
            for name, pool in self._results:
                if extents is not None and name in given:
                    results[name], at = given[name], extents.of(given[name])[0]
                else:
                    results[name], at = pool.take()
                places.append(at)
        memory = memory or RunMemory(self.plan, self.weights, self._runtime)
        if self.table is not None:
            memory.sized(self.plan.peak, self._table_address)
        bases, k = memory.bases, entry.FIRST_INPUT
        for at in places:
            bases[k] = at
            k += 1
        try:
            with self._turn:
                self._stopping.call(self._native, memory)
            self._records.check(memory.arena)
        finally:
            self._idle.append(memory)
        return results

    def run_at(
        self, inputs: Sequence[int], outputs: Sequence[int], host: Callable[[Step[int], RunMemory], None] | None = None
    ) -> None:
        """Run on memory that others own: addresses of inputs and outputs in the plan's order, of arrays as the plan has
        them, which nobody checks. `host` runs the steps that need Python (of a plan that has some).

        Raises:
            BoundsError: an index is outside of what it chooses from.
        """
        with self._memory() as memory:
            bases, k = memory.bases, entry.FIRST_INPUT
            for at in inputs:
                bases[k] = at
                k += 1
            for at in outputs:
                bases[k] = at
                k += 1
            with self._turn:
                if host is None:
                    self._stopping.call(self._native, memory)
                else:
                    with self._stopping.watched(memory):
                        for what in self._schedule:
                            if what < 0:
                                host(self.plan.steps[~what], memory)
                            else:
                                self._native[what](memory.at)
            self._records.check(memory.arena)

    def bind(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None
    ) -> Callable[[], dict[str, Any]]:
        """A run with these arrays, again and again: they are checked here, once, and it has an arena of its own.

        Raises:
            ArgumentError: as `run`; or an input is not read where it lies (no contiguous array), or is needed after an
                array of `out` that overlaps it is written.
        """
        given = check_outputs(self.plan, out or {}, self.weights)
        arrays = check_inputs(self.plan, inputs)
        if not self._all_native:
            return partial(self._run_with_host, dict(inputs), given)
        check_bound(self.plan, arrays, inputs, given, self._dead_inputs())
        return Bound(self, arrays, given)

    def _dead_inputs(self) -> dict[tuple[int, int], str]:
        if self.shared.dead is None:
            self.shared.dead = dead_before(self.plan)
        return self.shared.dead

    def _separated(self, arrays: list[Any], given: Mapping[str, np.ndarray], extents: Extents) -> list[Any]:
        """The inputs, copied where an array of `out=` overlaps them and is written too early."""
        return separated(self.plan, arrays, given, self._dead_inputs(), self._notes, extents)

    def _run_with_host(self, inputs: Mapping[str, Any], given: Mapping[str, np.ndarray]) -> dict[str, Any]:
        arrays = check_inputs(self.plan, inputs)
        with self._watched_memory() as memory:
            frame = self._frame(memory, arrays)
            for what in self._schedule:
                if what < 0:
                    frame.host(self.plan.steps[~what], self._hosts)
                else:
                    self._native[what](memory.at)
            self._records.check(memory.arena)
            results = frame.results()
        for name, target in given.items():
            np.copyto(target, results[name])
            results[name] = target
        return results

    @contextlib.contextmanager
    def _memory(self) -> Iterator[RunMemory]:
        """An idle arena, or a new one."""
        with self._lock:
            memory = self._idle.pop() if self._idle else None
        memory = memory or RunMemory(self.plan, self.weights, self._runtime)
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
        with self._watched_memory() as memory:
            frame = self._frame(memory, arrays)
            for what in parts.order:
                if what >= 0:
                    parts.native[what](memory.at)
                elif ~what in parts.alone:
                    self.alone(~what, frame, observer, before)
                else:
                    frame.host(self.plan.steps[~what], self._hosts)
            self._records.check(memory.arena)
            return frame.results()

    def alone(self, k: int, frame: Frame, observer: Observer | None = None, before: Observer | None = None) -> None:
        """One step by itself, observed before and after (in its `turn`)."""
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

    @contextlib.contextmanager
    def _watched_memory(self) -> Iterator[RunMemory]:
        """Memory for one run, in its turn, which Ctrl-C ends."""
        with self._memory() as memory, self._turn, self._stopping.watched(memory):
            yield memory

    def _frame(self, memory: RunMemory, arrays: Sequence[Any]) -> Frame:
        """The tensors of one run: these inputs, and new arrays for outputs."""
        outputs = self.new_outputs()
        slots = [self.plan.slots.get(n) for n in self.plan.inputs]
        values = [address(a) if s is not None and s.dtype else None for a, s in zip(arrays, slots, strict=True)]
        values += [address(a) for a in outputs]
        for k, v in enumerate(values, entry.FIRST_INPUT):
            memory.bases[k] = v
        return Frame(self.plan, memory.arena, self.weights, arrays, outputs, self.table)

    def new_outputs(self) -> list[np.ndarray]:
        """Bytes for each output; none for one of the host."""
        slots = [self.plan.slots.get(name) for name in self.plan.outputs]
        return [aligned_bytes(0 if s is None or s.dtype is None else output_bytes(s)) for s in slots]

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """The pool of threads for one run."""
        with self._turn:
            yield

    def _sizes(self, step: int) -> int | None:
        """Where the sizes are that a step's code gets."""
        sizes = self.plan.steps[step].sizes
        if not sizes:
            return None
        if step not in self._step_sizes:
            self._step_sizes[step] = (ctypes.c_int64 * len(sizes))(*sizes)
        return ctypes.addressof(self._step_sizes[step])


class Bound:
    """A run of a native program whose arrays are checked and whose addresses are filled in; callers take turns."""

    def __init__(self, executor: NativeExecutor, arrays: Sequence[np.ndarray], given: Mapping[str, np.ndarray]) -> None:
        plan = executor.plan
        self._executor, self._arrays = executor, arrays  # what the addresses point to stays alive
        self._memory = RunMemory(plan, executor.weights, executor._runtime)
        if executor.table is not None:
            self._memory.sized(plan.peak, executor._table_address)
        self.outputs = {n: given[n] if n in given else pool.take()[0] for n, pool in own_results(plan)}
        for k, array in enumerate((*arrays, *self.outputs.values()), entry.FIRST_INPUT):
            self._memory.bases[k] = address(array)
        self._lock = threading.Lock()

    def __call__(self) -> dict[str, Any]:
        """Run on what the inputs hold now. The outputs by name: the same arrays each time.

        Raises:
            BoundsError: an index is outside of what it chooses from.
        """
        executor, memory = self._executor, self._memory
        with self._lock, executor._turn:
            executor._stopping.call(executor._native, memory)
            executor._records.check(memory.arena)
        return self.outputs


def own_results(plan: Plan[int]) -> list[tuple[str, Results]]:
    """Where arrays for the outputs come from."""
    return [(n, Results(plan.slots[n])) for n in plan.outputs]
