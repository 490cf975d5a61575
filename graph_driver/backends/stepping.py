"""Back ends whose kernels are called one at a time, on bytes in the memory of this process.

A simulator, a library behind a C interface, a device with memory that the host sees: such a back end says what its
machines are, makes a schedule and the image of one kernel, and gives a function of an image. The rest is here: models
run step by step, directories keep the images, operators are compiled for the sizes of their arguments.
"""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.emit.kernel import Kernel, Report
from polyc.emit.listing import Listing, loops_listing
from polyc.emit.loop_ir.loops import Block, Function
from polyc.emit.loop_ir.printer import to_text
from polyc.emit.lowering.checks import self_describing, wanted
from polyc.emit.passes.workspace import constant_bytes
from polyc.emit.recipe import Recipe
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.protocol import CODE, Backend, Code, Platform, Read, Saved
from polyc.graph_driver.execution.execute import Observer
from polyc.graph_driver.execution.frame import Frame, check_inputs, check_outputs, output_bytes
from polyc.graph_driver.execution.parts import Parts, cut
from polyc.graph_driver.execution.run_memory import aligned_bytes
from polyc.graph_driver.execution.violations import Records, steps_with_records
from polyc.graph_driver.planning.plan import Plan, is_record
from polyc.graph_driver.planning.slots import Step
from polyc.poly.errors import ArgumentError, BoundsError, BuildError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Node
from polyc.poly.violations import described

if TYPE_CHECKING:
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.graph.report import Report as ModelReport
    from polyc.graph_driver.host.reference import HostNode
    from polyc.scheduler.schedule import Schedule

Run = Callable[[Sequence[np.ndarray]], None]
"""A kernel that runs: it gets the bytes of its arrays (u8, one dimension each) in the order of `Compiled.order`."""


class SteppingBackend(Backend):
    """A back end that implements, besides its machines and `schedule` and `compile`, only `function`."""

    @abstractmethod
    def function(self, image: bytes, machine: Any) -> Run:
        """What runs the image of a kernel. Raises `BuildError`, `ValueError`: it is damaged."""

    def text_of(self, image: bytes) -> str:
        """An image as text for people: the file of a kernel in a compiled directory, and the stage that has the back
        end's name (if `stages` says so)."""
        return ""

    def kernel(self, schedule: Schedule, machine: Any, threads: int, checks: bool | None) -> SteppingKernel:
        """An operator whose code is made for the sizes of each call, and kept."""
        return SteppingKernel(self, schedule, machine, threads, checks)

    def listing(self, schedule: Schedule, machine: Any, symbol: str) -> tuple[Function, Listing, list[dict[str, Any]]]:
        """The loops that code is made of."""
        function = lowered(schedule, symbol, False)
        return function, loops_listing(function), []

    def link(
        self, platform: Platform, plan: Plan, groups: Sequence[Group], compiled: Mapping[str, Compiled],
        report: ModelReport,
    ) -> Images:  # fmt: skip
        """The images, as they are."""
        return Images(platform, {c.symbol: c.image for c in compiled.values()})

    def save(self, code: Images, plan: Plan) -> Saved:
        """The machine, and the images one behind the other."""
        images = code.images
        entries = {
            "machine": self.data_of(code.platform.machine), "threads": code.platform.threads,
            "symbols": list(images), "code": [len(image) for image in images.values()],
        }  # fmt: skip
        return Saved(json.loads(json.dumps(entries)), {CODE: list(images.values())})

    def load(self, entries: Mapping[str, Any], plan: Plan, read: Read) -> Images:
        """The images back."""
        machine = self.machine_from(entries["machine"])
        images = read(CODE, [int(n) for n in entries["code"]])
        found = dict(zip(entries["symbols"], images, strict=True))
        missing = [s.symbol for s in plan.steps if s.kind == "kernel" and s.symbol not in found]
        if missing:
            raise ValueError(f"code of {missing[0]}")
        return Images(Platform(self, machine, int(entries["threads"])), found)

    def write_for_people(self, code: Images, kept: Saved, folder: Path) -> None:
        """Each kernel's text, where it has one."""
        texts = {symbol: text for symbol, image in code.images.items() if (text := self.text_of(image))}
        if texts:
            (folder / "kernels").mkdir()
        for symbol, text in texts.items():
            (folder / "kernels" / f"{symbol}.{self.name}").write_text(text, encoding="utf-8")


@dataclass
class Images(Code):
    """The images of the kernels by symbol."""

    platform: Platform
    images: dict[str, bytes]

    def start(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], notes: list[str]
    ) -> SteppingExecutor:
        """The plan with its memory. Raises `BuildError`: a kernel does not run here."""
        backend = self.platform.backend
        assert isinstance(backend, SteppingBackend)
        functions = {s: backend.function(image, self.platform.machine) for s, image in self.images.items()}
        return SteppingExecutor(plan, weights, hosts, functions)


class SteppingExecutor:
    """A plan whose steps are called one after another; runs from several threads have memory of their own."""

    def __init__(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall],
        functions: Mapping[str, Run],
        table: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """`table` has the values that follow from symbolic sizes."""
        self._table = table
        self.plan, self._weights, self._hosts, self._functions = plan, weights, hosts, functions
        self._idle = [aligned_bytes(plan.peak)]
        self._lock = threading.Lock()
        self._records = Records(plan, steps_with_records(plan))

    @property
    def arena(self) -> np.ndarray:
        """The memory of the next run."""
        return self._idle[-1]

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None, stream: Any = None
    ) -> dict[str, Any]:
        """Outputs by name; those named in `out` are written there.

        Raises:
            ArgumentError: inputs or arrays of `out` do not fit, or there are no streams.
            BoundsError: an index is outside of what it chooses from.
        """
        if stream is not None:
            raise ArgumentError("stream= is of a GPU")
        given = {} if out is None else check_outputs(self.plan, out, self._weights)
        results = self._run(check_inputs(self.plan, inputs), frozenset(), None, None)
        for name, array in given.items():
            np.copyto(array, results[name])
        return results | given

    def bind(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None
    ) -> Callable[[], dict[str, Any]]:
        """A run with these arrays, again and again; what does not fit is said by the first one."""
        return partial(self.run, dict(inputs), None if out is None else dict(out))

    def run_eager(
        self, inputs: Mapping[str, Any], observer: Observer | None = None, before: Observer | None = None
    ) -> dict[str, Any]:
        """The same; `observer(number, step, look)` is called after each step, `before` before it."""
        return self.run_in_parts(inputs, cut(self.plan, frozenset(range(len(self.plan.steps)))), observer, before)

    def run_in_parts(
        self, inputs: Mapping[str, Any], parts: Parts, observer: Observer | None = None,
        before: Observer | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The same, where only the steps that run alone are observed."""
        return self._run(check_inputs(self.plan, inputs), parts.alone, observer, before)

    def _run(
        self, arrays: Sequence[Any], watched: frozenset[int], observer: Observer | None, before: Observer | None
    ) -> dict[str, Any]:
        with self._lock:
            arena = self._idle.pop() if len(self._idle) > 1 else None
        arena = aligned_bytes(self.plan.peak) if arena is None else arena
        slots = [self.plan.slots.get(name) for name in self.plan.outputs]
        outputs = [aligned_bytes(0 if s is None or s.dtype is None else output_bytes(s)) for s in slots]
        frame = Frame(self.plan, arena, self._weights, arrays, outputs, self._table)

        def look(name: str) -> np.ndarray:
            return np.array(frame.value(name))

        try:
            for k, step in enumerate(self.plan.steps):
                if before is not None and k in watched:
                    before(k, step, look)
                self._step(step, frame)
                if observer is not None and k in watched:
                    observer(k, step, look)
            self._records.check(arena)
            return frame.results()
        finally:
            self._idle.append(arena)

    def _step(self, step: Step, frame: Frame) -> None:
        if step.kind == "kernel":
            self._functions[step.symbol]([frame.bytes_of(a) for a in step.args])
        elif step.kind == "copy":
            source, target = (frame.bytes_of(a) for a in step.args)
            np.copyto(target[: source.size], source)
        else:
            frame.host(step, self._hosts)


class SteppingKernel(Kernel):
    """An operator of such a back end. Code is made at the first call with new sizes, and kept."""

    def __init__(
        self, backend: SteppingBackend, schedule: Schedule, machine: Any, threads: int, checks: bool | None
    ) -> None:
        scop = schedule.scop
        nothing = Function(scop.name, (), tuple(scop.params), Block(()))
        super().__init__(scop, nothing, machine, backend.name, threads, None, Report(notes=[*schedule.notes]))
        self._backend, self._schedule, self._machine, self._checks = backend, schedule, machine, wanted(checks)
        self._made: dict[tuple[int, ...], tuple[Compiled, Run]] = {}
        rest = backend.name, threads, tuple(schedule.notes), self._checks
        self.recipe = Recipe(made_again, scop, schedule.tree, machine, rest)

    def run(self, arrays: list[np.ndarray], bound: Any) -> None:
        """Execute on checked arrays: arguments, then results. Raises `BoundsError`."""
        compiled, call = self._for(bound.values)
        scratch = {name: aligned_bytes(int(size)) for name, size in compiled.scratch}
        places = dict(zip((*self.scop.args, *self.scop.results), arrays)) | scratch
        call([places[name].reshape(-1).view(np.uint8) for name in compiled.order])
        for name, record in scratch.items():
            if is_record(name) and (found := described(record.view(np.uint64).tolist())) is not None:
                array = "" if found.argument is None else compiled.order[found.argument]
                raise BoundsError(self.scop.name, None, array, found.axis, found.index, found.size)

    def source(self, kind: str = "loops") -> str:
        """The kernel as text: `loops`, or what the back end's name calls for.

        Raises:
            BuildError: there is no such text, or it needs sizes that are still free.
        """
        if kind == "loops":
            return to_text(lowered(self._schedule, self.scop.name, self._checks))
        if kind != self.backend:
            raise BuildError(f"a kernel of {self.backend} has no source of kind '{kind}'; it has loops, {self.backend}")
        if self.scop.params:
            raise BuildError(f"the text of {self.scop.name} needs values for {', '.join(self.scop.params)}")
        return self._backend.text_of(self._for({})[0].image)

    def _for(self, sizes: Mapping[str, int]) -> tuple[Compiled, Run]:
        """The code for these sizes."""
        key = tuple(sizes[p] for p in self.scop.params)
        if key not in self._made:
            from polyc.graph_driver.backends.sizes import specialised  # loads isl

            schedule = specialised(self._schedule, sizes)
            made = self._backend.compile(schedule, self._machine, self.threads, self.scop.name, self._checks)
            self._report.seconds |= made.seconds
            self._report.notes += [n for n in made.notes if n not in self._report.notes]
            self._made[key] = made, self._backend.function(made.image, self._machine)
        return self._made[key]


def made_again(
    scop: Scop, tree: Node, machine: Any, name: str, threads: int, notes: Sequence[str], checks: bool
) -> SteppingKernel:
    """A kernel in another process. Raises `BuildError`: its back end is not installed there."""
    from polyc.graph_driver.backends.registry import named
    from polyc.scheduler.schedule import Schedule

    backend = named(name)
    assert isinstance(backend, SteppingBackend)
    return SteppingKernel(backend, replace(Schedule.start(scop), tree=tree), machine, threads, checks)


def lowered(schedule: Schedule, symbol: str, checks: bool) -> Function:
    """The loops of a schedule, proved against its Scop, for a machine without vectors. With `checks` the last buffer
    is the record of violated accesses, if there are any to check; it says itself what it means.

    Raises:
        BuildError: the schedule has no loops.
    """
    from polyc.emit.c import c99
    from polyc.emit.lowering.lower import lower

    name = "".join(c if c.isalnum() else "_" for c in symbol)
    return self_describing(lower(schedule.scop, schedule.tree, name, c99.target(), False, checks))


def scratch_of(function: Function) -> tuple[tuple[str, int], ...]:
    """The record of violated accesses of such a function, as `Compiled.scratch` has it; nothing without checks."""
    if not function.checks:
        return ()
    record = function.buffers[-1]
    size = constant_bytes(record)
    assert size is not None
    return ((record.name, size),)
