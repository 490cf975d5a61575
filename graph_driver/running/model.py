"""A compiled model: `Model`. `compile_model.py` makes them, `artifacts/package.py` loads those that were saved."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.execution import entry
from polyc.graph_driver.execution.control import ControlNode
from polyc.graph_driver.execution.execute import Executor, Observer
from polyc.graph_driver.execution.parts import Parts, chosen_steps, cut
from polyc.graph_driver.execution.program import Code, native_parts
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.planning.plan import Plan
from polyc.poly.errors import ArgumentError
from polyc.poly.hooks import resolve

if TYPE_CHECKING:
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.ir import Graph
    from polyc.graph_driver.host.reference import HostNode

MODES = ("graph", "eager", "mixed")
KEPT_PARTS = 8  # ways to cut the plan that have their code ready; the one used longest ago goes first

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]


@dataclass(frozen=True)
class Specialisation:
    """A model that was compiled for the `shapes` (by input) of a call, in how many `seconds`, and `why`."""

    shapes: Mapping[str, Shape]
    seconds: float
    why: str
    model: Model

    def __str__(self) -> str:
        return f"specialised to {shapes_text(self.shapes)} in {self.seconds:.2f} s: {self.why}"


def shapes_text(shapes: Mapping[str, Shape]) -> str:
    """`x[1, 3], h[2]`."""
    return ", ".join(f"{n}{list(s)}" for n, s in shapes.items())


class Model:
    """A compiled model. Call it with a dictionary of arrays; it gives one back.

    `plan` (steps, slots, peak, bound) and `graph` (None after `load`) can be looked at.
    """

    def __init__(self, name: str, code: Code, plan: Plan, weights: np.ndarray,
                 hosts: Sequence[HostNode | ControlNode],
                 report: Report, graph: Graph | None = None, groups: Sequence[Group] = ()) -> None:  # fmt: skip
        self.name, self.code, self.plan, self.graph = name, code, plan, graph
        self.groups = tuple(groups)
        self.hosts = tuple(hosts)
        self.weights = weights
        self._report = report
        self._executor: Executor | None = None
        self._linking = threading.Lock()
        self._cuts: dict[frozenset[int], Parts] = {}
        self._cutting = threading.Lock()

    def executor(self) -> Executor:
        """The loaded program (linked at first use)."""
        with self._linking:
            if self._executor is None:
                from polyc.emit.run_time import threadpool

                runtime = threadpool.handle(self.code.threads) if self.code.threads > 1 else 0
                self._executor = Executor(
                    self.plan, self.weights, self.hosts, self.code.link(), runtime or 0, notes=self._report.notes
                )
            return self._executor

    def __call__(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        """Run in `graph` mode, from any thread; outputs named in `out` are written to those arrays.

        An array of `out` may overlap inputs: results are those for the inputs as they were (a copy is made where the
        order of the steps does not keep them long enough, with a note in the report).

        Raises:
            ArgumentError: names, dtypes or shapes do not fit, or two arrays of `out` overlap each other or the weights.
        """
        return (self._executor or self.executor()).run(inputs, out)

    def eager(self, inputs: Mapping[str, Any], observer: Observer | None = None) -> dict[str, Any]:
        """Run step by step; see `Executor.run_eager`."""
        return self.for_inputs(inputs).run_eager(inputs, observer)

    def run(
        self, inputs: Mapping[str, Any], mode: str = "graph", eager: Sequence[str] = (),
        observer: Observer | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Run in one of `MODES`; the results are the same bits in all.

        Args:
            mode: `graph` (as a call: native code from host step to host step), `eager` (step by step), or `mixed`:
                the steps that `eager` names run one at a time and are observed, all between them natively.
            eager: of mixed mode, patterns of nodes, operators, tensors or numbers of steps
                (`polyc.graph_driver.execution.parts.chosen_steps`).
            observer: of eager and mixed mode, called after each step that runs by itself as
                `observer(number, step, look)`; `look(name)` copies a tensor that is in memory then. A
                `polyc.Watch` keeps values, their ranges, and finds NaNs.

        Raises:
            ArgumentError: inputs do not fit, there is no such mode, a pattern names no step, or an argument has no
                effect in this mode.
        """
        if mode not in MODES:
            raise ArgumentError(f"there is no mode '{mode}'; modes are {', '.join(MODES)}")
        if eager and mode != "mixed":
            raise ArgumentError(f"steps to run one at a time are chosen in mixed mode, not in {mode} mode")
        if mode == "graph":
            if observer is not None:
                raise ArgumentError("in graph mode there is nothing to observe: take eager or mixed")
            return self(inputs)
        if mode == "eager":
            return self.eager(inputs, observer)
        return self.in_parts(inputs, chosen_steps(self.plan, eager), observer)

    def in_parts(
        self, inputs: Mapping[str, Any], alone: frozenset[int], observer: Observer | None = None,
        before: Observer | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Run with the steps `alone` one at a time, observed after and `before` each, and the others natively."""
        executor = self.for_inputs(inputs)
        return executor.run_in_parts(inputs, self._parts(executor, alone), observer, before)

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The loaded program for inputs of these sizes."""
        return self._executor or self.executor()

    def model_for(self, inputs: Mapping[str, Any]) -> Model:
        """The model that runs inputs of these shapes: this one, or one that was specialised (now, if need be).

        Raises:
            ArgumentError: there is none for these shapes.
        """
        return self

    def specialisations(self) -> tuple[Specialisation, ...]:
        """The models that were compiled for the shapes of a call and are kept, the one used last at the end."""
        return ()

    def _parts(self, executor: Executor, alone: frozenset[int]) -> Parts:
        """The plan cut into parts, with their code; the last `KEPT_PARTS` are kept."""
        with self._cutting:
            found = self._cuts.pop(alone, None) or self._native_parts(executor, alone)
            self._cuts[alone] = found
            while len(self._cuts) > KEPT_PARTS:
                del self._cuts[next(iter(self._cuts))]
            return found

    def _native_parts(self, executor: Executor, alone: frozenset[int]) -> Parts:
        parts = cut(self.plan, alone)
        text = self._program_text(alone)
        return replace(parts, native=native_parts(text, self.code.target, len(parts.segments), executor.addresses))

    def _program_text(self, alone: frozenset[int]) -> str:
        """The native program without the steps `alone`."""
        return entry.entry_text(self.plan, self.code.target.triple, alone)

    def inspect(self, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Values of any tensors of the graph in an eager run.

        A tensor that lives only inside a fused kernel is computed by the reference from the
        kernel's inputs (possible while the graph is at hand, not after `load`).

        Raises:
            ModelError: there is no such tensor, or it is inside a kernel of a loaded model.
        """
        from polyc.graph_driver.execution.look import inspect_tensors  # loads onnx

        return inspect_tensors(self, inputs, names)

    def save(self, folder: str | Path) -> None:
        """Write a compiled directory (see `polyc.graph_driver.artifacts.package`). Raises `BuildError`."""
        resolve("save_model")(self, Path(folder))

    def __reduce__(self) -> tuple[Any, ...]:
        """As the files of a compiled directory: another process gets what `load` gives. Raises `BuildError`."""
        return resolve("pickled_model")(self)

    def __copy__(self) -> Model:
        return self  # runs share nothing that a caller sees

    def __deepcopy__(self, memo: Any) -> Model:
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}({self.shapes_text()})>"

    def _repr_html_(self) -> str:
        return str(resolve("html")(self))

    def report(self) -> Report:
        """What was compiled, what runs on the host and why, memory, times."""
        return self._report

    def inputs_for(
        self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape of all inputs beside arrays of the shapes `given`; `sizes` are values of symbolic sizes.

        Raises:
            ArgumentError: there is no such size.
        """
        if sizes:
            raise ArgumentError(f"size {next(iter(sizes))} is fixed: the model was compiled for {self.shapes_text()}")
        return self.inputs

    def shapes_text(self) -> str:
        """The inputs with their shapes in one line."""
        return ", ".join(f"{n}{list(shape)}" for n, (_, shape) in self.inputs.items())

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape by input name."""
        return {n: (self.plan.slots[n].dtype or "", self.plan.slots[n].shape or ()) for n in self.plan.inputs}
