"""A compiled model, `Model`, and what it has that runs it, `Running`.

`compile_model.py` makes models, `artifacts/package.py` loads those that were saved.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.execution.parts import Parts, chosen_steps
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.running.specialising import Specialisation, Specialiser
from polyc.poly.errors import ArgumentError, BuildError
from polyc.poly.hooks import resolve
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    from polyc.graph_driver.backends.protocol import Code
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.execution.evicting_run import Evicted
    from polyc.graph_driver.execution.executor import Executor, Observer
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.ir import Graph
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode

MODES = ("graph", "eager", "mixed")
KEPT_PARTS = 8  # ways to cut the plan that have their code ready; the one used longest ago goes first

Inputs = dict[str, tuple[str, tuple[int, ...]]]
"""dtype and shape by input name."""


@dataclass(frozen=True)
class Built:
    """What compiling makes beside code: the plan, the weights segment, what runs host steps by number; the graph and
    its groups while they are at hand. `anew` compiles a finished program from the cache again, once, for these two."""

    plan: Plan
    weights: np.ndarray
    hosts: Sequence[HostNode | ControlNode | PythonCall]
    graph: Graph | None = None
    groups: Sequence[Group] = ()
    anew: Callable[[], Built] | None = None

    @property
    def whole(self) -> Built:
        """This, with graph and groups where they can be had. Raises `ModelError`: the file has changed."""
        return self if self.anew is None else self.anew()


class Running(ABC):
    """What runs the calls of a model: it has an executor for the shapes of each.

    `only` is the executor of all calls once it is there, where one runs all of them. `formulas` is the plan of sizes
    that are not numbers, `specialiser` compiles for the shapes of calls that nothing else runs. `unsaved` says why
    there is no directory of it.
    """

    only: Executor | None = None
    formulas: Plan | None = None
    specialiser: Specialiser[Model] | None = None
    unsaved = ""

    @property
    @abstractmethod
    def built(self) -> Built:
        """What was compiled. Raises `BuildError`: nothing yet."""

    def compiled_by(self, anew: Callable[[], Built]) -> None:
        """Where graph and groups come from when somebody wants them."""
        return

    @property
    def code(self) -> Code:
        """What the executor is made of. Raises `BuildError`: there is none yet."""
        raise BuildError("the model has no code yet")

    @abstractmethod
    def executor(self) -> Executor:
        """The loaded program at the sizes of the plan.

        Raises:
            BuildError: it does not run here.
        """

    @abstractmethod
    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The loaded program for inputs of these shapes. Raises `ArgumentError`: there is none."""

    @abstractmethod
    def parts(self, alone: frozenset[int]) -> Parts:
        """The plan cut around the steps `alone`, with the code of its parts."""

    def special_for(self, inputs: Mapping[str, Any]) -> Model | None:
        """The model that was compiled for the shapes of these inputs (now, if need be), where another is needed.

        Raises:
            ArgumentError: there is none for these shapes.
        """
        return None

    def specialise(self, sizes: Mapping[str, int]) -> Model:
        """The model for these values of symbolic sizes. Raises `ArgumentError`, `BuildError`."""
        raise ArgumentError(f"the model has no symbolic sizes: it was compiled for {self.shapes_text()}")

    def wait(self, timeout: float | None = None) -> bool:
        """As `Model.wait`."""
        return True

    def close(self) -> None:
        """As `Model.close`."""
        return

    def settle(self) -> None:
        """Wait until there is a program to be saved. Raises `BuildError`: there will be none."""
        return

    @property
    def inputs(self) -> Inputs:
        """dtype and shape by input name."""
        plan = self.built.plan
        return {n: (plan.slots[n].dtype or "", plan.slots[n].shape or ()) for n in plan.inputs}

    def inputs_for(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> Inputs:
        """As `Model.inputs_for`. Raises `ArgumentError`: a size is given although all are fixed."""
        if sizes:
            raise ArgumentError(f"size {next(iter(sizes))} is fixed: the model was compiled for {self.shapes_text()}")
        return self.inputs

    def chosen_sizes(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> dict[str, int]:
        """As `Model.chosen_sizes`."""
        return {}

    def shape_of(self, name: str) -> tuple[int | str | None, ...] | None:
        """As `Model.shape_of`."""
        slot = self.built.plan.slots.get(name)
        return () if slot is None else slot.shape or ()

    def shapes_text(self) -> str:
        """The inputs with their shapes in one line."""
        return ", ".join(f"{n}{list(shape)}" for n, (_, shape) in self.inputs.items())


class Model:
    """A compiled model. Call it with a dictionary of arrays; it gives one back.

    `plan` (steps, slots, peak, bound) and `graph` (None after `load`) can be looked at. What runs it is `running`:
    for one shape, for all sizes, for the shapes of each call, or on a device.
    """

    def __init__(self, name: str, running: Running, report: Report) -> None:
        self.name, self.running = name, running
        self._report = report
        self._cuts: dict[frozenset[int], Parts] = {}
        self._cutting = threading.Lock()

    def __call__(
        self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None, stream: Any = None
    ) -> dict[str, Any]:
        """Run in `graph` mode, from any thread; outputs named in `out` are written to those arrays.

        An array of `out` may overlap inputs: results are those for the inputs as they were (a copy is made where the
        order of the steps does not keep them long enough, with a note in the report).

        On a GPU, inputs may be arrays of the device (`DeviceArray`, DLPack, `__cuda_array_interface__`): outputs then
        stay there, as new arrays that are ready when `stream` of the device is.

        Sizes that a guard excludes, and all where sizes cannot be formulas, have a model compiled for them at the
        first call, which is kept (`specialisations()`).

        Raises:
            ArgumentError: names, dtypes or shapes do not fit, or two arrays of `out` overlap each other or the weights.
            DeviceError: there is no device.
        """
        return (self.running.only or self.running.for_inputs(inputs)).run(inputs, out, stream)

    def bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray] | None = None
    ) -> Callable[[], dict[str, Any]]:
        """A function that runs the model on these arrays, as they are at each call, and gives its outputs by name.

        The arrays are checked once: calls do no more than the work of the model. On a CPU a bound run has memory of its
        own, and outputs that `outputs` does not name are written to the same arrays each time; of a model of the tier
        `progressive` it stays with the program that runs now (`wait` first).

        Raises:
            ArgumentError: as a call; or an input cannot be read where it lies, or is needed after an array of `outputs`
                that overlaps it is written.
        """
        return self.for_inputs(inputs).bind(inputs, outputs)

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
        model = self.model_for(inputs)
        return model.in_parts(inputs, chosen_steps(model.plan, eager), observer)

    def in_parts(
        self, inputs: Mapping[str, Any], alone: frozenset[int], observer: Observer | None = None,
        before: Observer | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Run with the steps `alone` one at a time, observed after and `before` each, and the others natively."""
        model = self.model_for(inputs)
        return model.for_inputs(inputs).run_in_parts(inputs, model._parts(alone), observer, before)

    def run_within(
        self, inputs: Mapping[str, Any], limit: int, heuristic: str = "dtr",
        out: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[dict[str, Any], Evicted]:  # fmt: skip
        """Run on a CPU with at most `limit` bytes between kernels: tensors are dropped while it runs, and made again
        when a step asks for them (DTR, 2006.09616). The outputs have the bits of any other run; with them comes what
        was done. Inputs, outputs (`out` as in a call) and weights are not counted.

        Args:
            heuristic: what is dropped first: `dtr` (least time to make again by size and staleness), `local`, `lru` or
                `size`.

        Raises:
            ArgumentError: inputs or arrays of `out` do not fit, there is no such heuristic, or the model is for another
                device.
            DoesNotFit: what one step needs at once is more than the limit.
        """
        from polyc.graph_driver.execution.evicting_run import run_evicting

        return run_evicting(self.for_inputs(inputs), inputs, limit, heuristic, out)

    def _parts(self, alone: frozenset[int]) -> Parts:
        """The plan cut into parts, with their code; the last `KEPT_PARTS` are kept."""
        with self._cutting:
            found = self._cuts.pop(alone, None) or self.running.parts(alone)
            self._cuts[alone] = found
            while len(self._cuts) > KEPT_PARTS:
                del self._cuts[next(iter(self._cuts))]
            return found

    def inspect(self, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Values of any tensors of the graph in an eager run.

        A tensor that lives only inside a fused kernel is computed by the reference from the
        kernel's inputs (possible while the graph is at hand, not after `load`).

        Raises:
            ModelError: there is no such tensor, or it is inside a kernel of a loaded model.
        """
        from polyc.graph_driver.execution.look import inspect_tensors  # loads onnx

        return inspect_tensors(self.model_for(inputs), inputs, names)

    def run_until(self, inputs: Mapping[str, Any], where: str, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Run step by step to the first step that `where` names, and stop: what it made, and the tensors `names`.

        Args:
            where: a node, operator, tensor or number of a step, as `eager` of `run`, or a tensor inside a kernel.
            names: further tensors, which a step so far has made or read; inputs and constants too.

        Raises:
            ArgumentError: inputs do not fit, or `where` names no step.
            ModelError: there is no such tensor, or not yet.
        """
        from polyc.graph_driver.execution.look import values_until  # loads onnx

        return values_until(self.model_for(inputs), inputs, where, names)

    # ---- what runs it ----

    def executor(self) -> Executor:
        """The loaded program at the sizes of the plan (linked at first use).

        Raises:
            BuildError: it does not run here, or nothing has been compiled yet.
        """
        return self.running.only or self.running.executor()

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The loaded program for inputs of these shapes. Raises `ArgumentError`: there is none."""
        return self.running.only or self.running.for_inputs(inputs)

    def model_for(self, inputs: Mapping[str, Any]) -> Model:
        """The model that runs inputs of these shapes: this one, or one that was specialised (now, if need be).

        Raises:
            ArgumentError: there is none for these shapes.
        """
        return self.running.special_for(inputs) or self

    def specialise(self, sizes: Mapping[str, int]) -> Model:
        """Compile for these values of the symbolic sizes alone; later calls at them run that code, a little faster.

        The last few such models are kept (`specialisations()`; their kernels stay in the disk cache).

        Raises:
            ArgumentError: a size is missing or outside of its range, or there are no symbolic sizes.
            BuildError: the model was loaded from a directory, which keeps no operators to compile.
        """
        return self.running.specialise(sizes)

    def specialisations(self) -> tuple[Specialisation[Model], ...]:
        """The models that were compiled for the shapes of a call and are kept, the one used last at the end."""
        return () if self.running.specialiser is None else self.running.specialiser.all()

    # ---- what it is ----

    @property
    def plan(self) -> Plan[int]:
        """Steps and memory; with symbolic sizes at the representative ones. Where each call has numbers of its own,
        this and the like are those of the model that was used last (`BuildError` before the first call)."""
        return self.running.built.plan

    @property
    def graph(self) -> Graph | None:
        """The optimised graph; None after `load`. A model from the cache is compiled for it. Raises `ModelError`: its
        file has changed since."""
        return self.running.built.whole.graph

    @property
    def groups(self) -> Sequence[Group]:
        """The nodes of the graph as kernels, in the order of the plan's steps; none after `load`. Raises as `graph`."""
        return self.running.built.whole.groups

    @property
    def weights(self) -> np.ndarray:
        """The weights segment."""
        return self.running.built.weights

    @property
    def hosts(self) -> Sequence[HostNode | ControlNode | PythonCall]:
        """What runs the steps that need Python, by their number."""
        return self.running.built.hosts

    @property
    def code(self) -> Code:
        """What the executor is made of. Raises `BuildError`: there is none yet."""
        return self.running.code

    @property
    def inputs(self) -> Inputs:
        """dtype and shape by input name."""
        return self.running.inputs

    def inputs_for(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> Inputs:
        """dtype and shape of all inputs beside arrays of the shapes `given`; `sizes` are values of symbolic sizes.
        Those that nothing fixes are the representative ones.

        Raises:
            ArgumentError: there is no such size.
        """
        return self.running.inputs_for(given, sizes)

    def chosen_sizes(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes by their names in the model that `inputs_for` chooses because nothing fixes them."""
        return self.running.chosen_sizes(given, sizes)

    def shape_of(self, name: str) -> tuple[int | str | None, ...] | None:
        """A tensor's shape: numbers, symbolic sizes by their names in the model, None for what follows from them; None
        as a whole where the shapes of a call decide."""
        return self.running.shape_of(name)

    def shapes_text(self) -> str:
        """The inputs with their shapes in one line, symbolic sizes by name."""
        return self.running.shapes_text()

    def report(self) -> Report:
        """What was compiled, what runs on the host and why, memory, times."""
        return self._report

    def wait(self, timeout: float | None = None) -> bool:
        """Of the tier `progressive`: wait until the full program is there, or cannot be made (the report says why), at
        most `timeout` seconds. Whether it runs now; of other tiers True."""
        return self.running.wait(timeout)

    def close(self) -> None:
        """Stop what compiles in the background; the model goes on with the program that it has. Dropping the model, or
        the end of the program, does so, too."""
        self.running.close()

    def save(self, folder: str | Path) -> None:
        """Write a compiled directory (see `polyc.graph_driver.artifacts.package`); of a model of the tier `progressive`
        when its full program is there.

        Raises:
            BuildError: the folder cannot be written, or the model is one for the shapes of each call.
        """
        self.running.settle()
        if self.running.unsaved:
            raise BuildError(self.running.unsaved)
        resolve("save_model")(self, Path(folder))

    def __reduce__(self) -> tuple[Any, ...]:
        """As the files of a compiled directory: another process gets what `load` gives; without one, as what it is
        compiled from. Raises `BuildError`."""
        return resolve("pickled_model")(self)

    def __copy__(self) -> Model:
        return self  # runs share nothing that a caller sees

    def __deepcopy__(self, memo: Any) -> Model:
        return self

    def __repr__(self) -> str:
        return f"<Model {self.name}({self.shapes_text()})>"

    def _repr_html_(self) -> str:
        return str(resolve("html")(self))
