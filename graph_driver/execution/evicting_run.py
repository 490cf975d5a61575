"""A run of a compiled model under a limit of memory that is kept while it runs (DTR, Kirisame et al., 2006.09616).

The plan's steps run one by one, each tensor in memory of its own instead of a place in the arena. Where the limit is
reached, tensors are dropped, and made again, by the same kernels on the same values, when a step asks for them: results
keep every bit. What goes is decided by the time that each kernel took, sizes and last uses, without knowledge of what
comes (`polyc.graph_driver.rematerialising.dynamic`); a memory limit of the compiler's plans the same beforehand.

A step may write a result over an operand, or a part of a tensor that others fill. Here each tensor has a *state* after
each step that writes it (`NAME@0`, `NAME@1`, ...): such a step takes over the memory of the state before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.graph_driver.execution.execute import NativeExecutor
from polyc.graph_driver.execution.executor import Executor
from polyc.graph_driver.execution.frame import Frame, check_inputs, check_outputs
from polyc.graph_driver.execution.run_memory import aligned_bytes
from polyc.graph_driver.execution.violations import check_record
from polyc.graph_driver.memory.lifetimes import aligned
from polyc.graph_driver.planning.plan import Plan, is_record
from polyc.graph_driver.planning.slots import Slot, Step
from polyc.graph_driver.rematerialising.dynamic import HEURISTICS, Runtime
from polyc.graph_driver.rematerialising.program import Step as Task
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Evicted:
    """What a run under a limit did: `steps` of the plan, how many `ran` with those that ran again, how many tensors
    were `dropped` for others, and the most bytes held at once."""

    limit: int
    steps: int
    ran: int
    dropped: int
    peak: int

    def __str__(self) -> str:
        return (
            f"{self.ran} steps for {self.steps} of the plan, {self.dropped} tensors dropped for others, at most "
            f"{self.peak} bytes held (limit {self.limit})"
        )


def run_evicting(
    executor: Executor, inputs: Mapping[str, Any], limit: int, heuristic: str = "dtr",
    out: Mapping[str, np.ndarray] | None = None,
) -> tuple[dict[str, Any], Evicted]:  # fmt: skip
    """Outputs by name (those named in `out` are written there), and what was done to keep the limit.

    Args:
        limit: bytes for what lies between kernels and for their scratch; inputs, outputs and weights are not in it.
        heuristic: what goes first, of `polyc.graph_driver.rematerialising.dynamic.HEURISTICS`.

    Raises:
        ArgumentError: inputs or arrays of `out` do not fit, the limit is no number of bytes, there is no such
            heuristic,
            or the executor is one of a device.
        BoundsError: an index is outside of what it chooses from.
        DoesNotFit: what one step needs at once is more than the limit.
    """
    if type(limit) is not int or limit < 0:
        raise ArgumentError(f"a memory limit is a number of bytes, not {limit!r}")
    if heuristic not in HEURISTICS:
        raise ArgumentError(f"there is no heuristic '{heuristic}': they are {', '.join(HEURISTICS)}")
    if not isinstance(executor, NativeExecutor):
        raise ArgumentError("tensors are dropped while a model runs on a CPU only: give a memory limit when compiling")
    plan = executor.plan
    given = check_outputs(plan, out or {}, executor.weights)
    arrays = check_inputs(plan, inputs)
    runtime = Runtime(limit, heuristic)
    frame = _Frame(plan, aligned_bytes(0), executor.weights, arrays, executor.new_outputs(), executor.table)
    run = _Run(executor, frame, runtime)
    with executor.turn():
        for k, task in enumerate(states(plan)):
            run.names.append(task)
            # The first run of a step says what it costs.
            runtime.add(task.step, task.sizes, run, task.takes, task.passing)
            runtime.steps[k] = replace(task.step, cost=run.seconds)
            for state in task.done:
                runtime.forget(state)
    results = frame.results()
    for name, target in given.items():
        np.copyto(target, results[name])
        results[name] = target
    return results, Evicted(limit, len(plan.steps), runtime.ran, runtime.evicted, runtime.peak)


@dataclass(frozen=True)
class States:
    """A step as one over states of tensors: `where` has the state that the step uses of each tensor in the arena,
    `done` what no later step uses."""

    step: Task
    sizes: Mapping[str, int]
    takes: Mapping[str, str]
    passing: frozenset[str]
    where: Mapping[str, str]
    done: tuple[str, ...]


def states(plan: Plan[int]) -> list[States]:
    """The steps of a plan over states of its tensors."""
    made = _States(plan)
    steps = [made.step(step) for step in plan.steps]
    last = {state: k for k, s in enumerate(steps) for state in (*s.step.reads, *s.step.makes)}
    return [
        replace(s, done=tuple(v for v in dict.fromkeys((*s.step.reads, *s.step.makes)) if last[v] == k))
        for k, s in enumerate(steps)
    ]


class _States:
    def __init__(self, plan: Plan[int]) -> None:
        self.plan = plan
        self.number: dict[str, int] = {}  # of the state that a tensor is in
        self.bytes: dict[str, int] = {}
        for name, slot in plan.slots.items():
            if slot.place.kind == "arena":
                root, at = plan.inside.get(name, (name, 0))
                self.bytes[root] = max(self.bytes.get(root, 0), at + slot.nbytes)
        self.sizes: dict[str, int] = {}

    def step(self, step: Step[int]) -> States:
        """The step, with the states that its tensors are in."""
        own = {n for n in (*step.args, *step.captures, *step.results) if self._in_arena(n)}
        written = {self._root(n) for n in step.results if n in own}
        operands = {self._root(n) for n in (*step.args, *step.captures) if n in own} - {*step.scratch}
        reads = {r: f"{r}@{self.number[r]}" for r in sorted(operands) if r in self.number}
        takes: dict[str, str] = {}
        where = dict(reads)
        makes: list[str] = []
        sizes: dict[str, int] = {}
        for r in sorted(written):
            over = r if r in self.number else self._overwritten(step, r, operands - written)
            self.number[r] = self.number.get(r, -1) + 1
            state = f"{r}@{self.number[r]}"
            size = aligned(self.bytes[r])
            if over is not None:
                takes[state] = reads.setdefault(over, f"{over}@{self.number[over] - (over == r)}")
                size = self.sizes[takes[state]]
                where[over] = state
            where[r] = state
            sizes[state] = self.sizes[state] = size
            makes.append(state)
        for n in step.scratch:
            where[n] = n
            sizes[n] = aligned(self.bytes[n])
            makes.append(n)
        elsewhere = any(n not in own for n in step.results)  # outputs, values of the host: made once
        task = Task(tuple(reads.values()), tuple(makes), again=step.kind == "kernel" and not elsewhere)
        return States(task, sizes, takes, frozenset(step.scratch), where, ())

    def _in_arena(self, name: str) -> bool:
        slot = self.plan.slots.get(name)
        return slot is not None and slot.place.kind == "arena"

    def _root(self, name: str) -> str:
        return self.plan.inside.get(name, (name, 0))[0]

    def _overwritten(self, step: Step[int], root: str, operands: set[str]) -> str | None:
        """The operand over which a kernel writes a new tensor: the one that has its place."""
        if any(self._root(a) == root for a in step.args):
            return None
        places = {self._start(n): r for n in step.args if self._in_arena(n) and (r := self._root(n)) in operands}
        return next((places[at] for n in step.results if self._root(n) == root and (at := self._start(n)) in places),
                    None)  # fmt: skip

    def _start(self, name: str) -> int:
        """Where the memory that a tensor is a part of begins in the plan's arena."""
        return self.plan.slots[name].place.offset - self.plan.inside.get(name, (name, 0))[1]


class _Memory:
    """Bytes that one state of a tensor has for itself."""

    def __init__(self, size: int) -> None:
        self.bytes = aligned_bytes(size)

    def __copy__(self) -> _Memory:
        made = _Memory(len(self.bytes))
        made.bytes[:] = self.bytes
        return made


class _Frame(Frame):
    """A frame in which tensors of the arena lie where `memories` says."""

    memories: Mapping[str, _Memory] = {}

    def _bytes(self, slot: Slot[int]) -> np.ndarray:
        if slot.place.kind != "arena":
            return super()._bytes(slot)
        root, at = self.plan.inside.get(slot.name, (slot.name, 0))
        return self.memories[root].bytes[at : at + slot.nbytes]

    def _shared(self) -> Iterator[np.ndarray]:
        yield from super()._shared()
        yield from (m.bytes for m in self.memories.values())


class _Run:
    """Runs a step on the memory of states; `seconds` are those of the last one."""

    def __init__(self, executor: NativeExecutor, frame: _Frame, runtime: Runtime) -> None:
        self.executor, self.frame, self.held = executor, frame, runtime.held
        self.names: list[States] = []
        self.seconds = 0.0

    def __call__(self, number: int, given: Sequence[Any]) -> Sequence[Any]:
        task, step = self.names[number], self.executor.plan.steps[number]
        memories: dict[str, _Memory] = dict(zip(task.step.reads, given, strict=True))
        for state in task.step.makes:
            if state in task.takes:
                memories[state] = memories[task.takes[state]]
            else:  # one that is there gets the same bytes once more
                memories[state] = self.held[state].value or _Memory(task.sizes[state])
        self.frame.memories = {root: memories[state] for root, state in task.where.items()}
        start = time.perf_counter()
        self.executor.alone(number, self.frame)
        self.seconds = time.perf_counter() - start
        for name in step.scratch:
            if is_record(name):
                check_record(self.executor.plan, step, self.frame.bytes_of(name))
        self.frame.memories = {}
        return [memories[state] for state in task.step.makes]
