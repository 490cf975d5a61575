"""A compiled model that runs for all sizes in the ranges of its symbols."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.execution import symbolic_entry as entry
from polyc.graph_driver.execution.execute import Executor
from polyc.graph_driver.execution.program import Code
from polyc.graph_driver.execution.run_memory import Shared
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.graph.size import Size, evaluate
from polyc.graph_driver.planning.symbolic.template import Template
from polyc.graph_driver.running.for_shapes import ModelForShapes
from polyc.graph_driver.running.model import Model, Shapes, Specialisation
from polyc.graph_driver.running.specialising import Specialiser
from polyc.poly.errors import ArgumentError, BuildError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.host.reference import HostNode

KEPT_SIZES = 64
"""How many combinations of sizes are remembered: a plan with its numbers each, no code."""


class DynamicModel(ModelForShapes):
    """A model compiled once for all sizes; `plan` is the plan at the representative sizes.

    The first call with new sizes evaluates the formulas (a millisecond or so); the last `KEPT_SIZES`
    combinations are remembered. All share one set of arenas, which grow to the largest.
    """

    def __init__(
        self, name: str, code: Code, template: Template, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode],
        report: Report, graph: Graph | None = None, groups: Sequence[Group] = (),
    ) -> None:  # fmt: skip
        super().__init__(name, code, template.typical, weights, hosts, report, graph, groups)
        self.template = template
        self._bound: OrderedDict[Shapes, Executor] = OrderedDict()
        self._binding = threading.Lock()
        self._addresses: tuple[dict[str, int], int] | None = None
        self._shared: Shared | None = None
        self.specialiser: Specialiser | None = None

    def __call__(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        """Run in `graph` mode, from any thread, at the sizes of the arrays.

        Sizes that a guard excludes have a model compiled for them, which is kept (`specialisations()`).

        Raises:
            ArgumentError: names, dtypes or shapes do not fit, or the sizes are outside of what the model
                was compiled for (the guard is named) and it may not be specialised.
        """
        if self.specialiser and (special := self.specialiser.kept(self._key(inputs))) is not None:
            return special(inputs, out)
        try:
            executor = self.for_inputs(inputs)
        except ArgumentError as refusal:
            return self._special_for(inputs, refusal)(inputs, out)
        return executor.run(inputs, out)

    def model_for(self, inputs: Mapping[str, Any]) -> Model:
        """This model, or the one for the shapes of these inputs alone. Raises `ArgumentError`."""
        if self.specialiser and (special := self.specialiser.kept(self._key(inputs))) is not None:
            return special
        try:
            self.for_inputs(inputs)
        except ArgumentError as refusal:
            return self._special_for(inputs, refusal)
        return self

    def _special_for(self, inputs: Mapping[str, Any], refusal: ArgumentError) -> Model:
        """The model for the shapes of these inputs, which this one refuses. Raises `ArgumentError`."""
        if self.specialiser is None:
            raise ArgumentError(
                f"{refusal}; a compiled directory keeps no operators to compile for other sizes: load the ONNX "
                f"file with polyc.compile_model, or compile it with these sizes (--dim)"
            ) from None
        key = self._key(inputs)
        if not self.specialiser.at_calls or not self.specialiser.allows(key):
            raise refusal
        return self.specialiser.get(key, str(refusal))

    def specialisations(self) -> tuple[Specialisation, ...]:
        """The models for fixed sizes that are kept, the one used last at the end."""
        return () if self.specialiser is None else self.specialiser.all()

    def specialise(self, sizes: Mapping[str, int]) -> Model:
        """Compile for these sizes alone; later calls at them run that code, a little faster.

        The last few such models are kept (`specialisations()`; their kernels stay in the disk cache).

        Raises:
            ArgumentError: a size is missing or outside of its range.
            BuildError: the model was loaded from a directory, which keeps no operators to compile.
        """
        if self.specialiser is None:
            raise BuildError(f"{self.name} was loaded from a compiled directory: specialise the ONNX file instead")
        key = self._shapes_at(sizes)
        why = "asked for"
        try:
            self.template.symbols.check(sizes)
        except ArgumentError as refusal:
            if not self.specialiser.allows(key):
                raise
            why = str(refusal)
        return self.specialiser.get(key, why)

    def shapes_text(self) -> str:
        """The inputs with their sizes, symbolic ones by name."""
        shapes = {n: self.template.shapes.get(n, self.plan.slots[n].shape or ()) for n in self.plan.inputs}
        return ", ".join(f"{n}[{', '.join(map(str, shape))}]" for n, shape in shapes.items())

    def executor(self) -> Executor:
        """The program at the representative sizes."""
        return self.at(self.template.symbols.typical)

    def _program_text(self, alone: frozenset[int]) -> str:
        return entry.entry_text(self.template, self.code.target.triple, alone)

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The program for the sizes of these inputs."""
        key = self._key(inputs)
        found = self._bound.get(key)
        if found is None:
            self._check(key)
            found = self._bind(key, self.template.values_of(dict(zip(self.plan.inputs, key, strict=True))))
        return found

    def _key(self, inputs: Mapping[str, Any]) -> Shapes:
        """The inputs' shapes in the plan's order."""
        try:
            return tuple([inputs[n].shape for n in self.plan.inputs])
        except (KeyError, AttributeError):
            return self._shapes(inputs)

    def at(self, values: Mapping[str, int]) -> Executor:
        """The program for these values of the symbols. Raises `ArgumentError`."""
        key = self._shapes_at(values)
        return self._bound.get(key) or self._bind(key, values)

    def _shapes_at(self, values: Mapping[str, int]) -> Shapes:
        """The inputs' shapes for these values of the symbols. Raises `ArgumentError` when one is not given."""
        missing = [n for n in self.template.symbols.ranges if n not in values]
        if missing:
            raise ArgumentError(f"size {missing[0]} is not given")
        return tuple(
            tuple(evaluate(n, values) for n in self.template.shapes.get(name, self.plan.slots[name].shape or ()))
            for name in self.plan.inputs
        )

    def inputs_for(
        self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """As `Model.inputs_for`: sizes that neither an array nor `sizes` fixes are the representative ones."""
        symbols = self.template.symbols
        values = symbols.typical | self._fixed(given, sizes)
        return {
            n: (slot.dtype or "", tuple(evaluate(e, values) for e in self.template.shapes.get(n, slot.shape or ())))
            for n in self.plan.inputs
            if (slot := self.plan.slots[n])
        }

    def chosen_sizes(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes by their names in the model that `inputs_for` chooses because nothing fixes them."""
        fixed = self._fixed(given, sizes)
        return {r.key: r.typical for n, r in self.template.symbols.ranges.items() if n not in fixed}

    def _fixed(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> dict[str, int]:
        """Values of the symbols that arrays of the shapes `given`, or `sizes`, fix. Raises `ArgumentError`."""
        ranges = self.template.symbols.ranges
        names = {r.key: n for n, r in ranges.items()} | {n: n for n in ranges}
        unknown = [n for n in sizes if n not in names]
        if unknown:
            known = ", ".join(r.key for r in ranges.values())
            raise ArgumentError(f"the model has no symbolic size '{unknown[0]}'; it has {known}")
        values = {}
        for name, shape in given.items():
            for want, n in zip(self.template.shapes.get(name, ()), shape):
                if isinstance(want, Size):
                    values[str(want)] = int(n)
        return values | {names[n]: v for n, v in sizes.items()}

    def _shapes(self, inputs: Mapping[str, Any]) -> Shapes:
        missing = [n for n in self.plan.inputs if n not in inputs]
        if missing:
            raise ArgumentError(f"input '{missing[0]}' is missing")
        return tuple(np.shape(inputs[n]) if self.plan.slots[n].dtype else () for n in self.plan.inputs)

    def _check(self, key: Shapes) -> None:
        """Refuse shapes that contradict the model or each other."""
        values: dict[str, tuple[int, str]] = {}
        for name, shape in zip(self.plan.inputs, key, strict=True):
            slot = self.plan.slots[name]
            if slot.dtype is None:
                continue
            wanted = self.template.shapes.get(name, slot.shape or ())
            text = f"[{', '.join(map(str, wanted))}]"
            if len(shape) != len(wanted):
                raise ArgumentError(f"input '{name}' has shape {list(shape)}, the model was compiled for {text}")
            for axis, (want, given) in enumerate(zip(wanted, shape)):
                known, origin = (want, "") if isinstance(want, int) else values.get(str(want), (given, ""))
                if known != given:
                    where = f" ({want} = {known} in input '{origin}')" if origin else ""
                    raise ArgumentError(
                        f"input '{name}' has size {given} on axis {axis}, the model was compiled for {text}{where}"
                    )
                if not isinstance(want, int):
                    values.setdefault(str(want), (given, name))

    def _bind(self, key: Shapes, values: Mapping[str, int]) -> Executor:
        self.template.symbols.check(values)
        bound = self.template.bind(values)
        with self._binding:
            addresses, runtime = self._linked()
            made = Executor(
                bound.plan,
                self.weights,
                self.hosts,
                addresses,
                runtime,
                bound.table,
                self.template.params,
                self._shared,
                self._report.notes,
            )
            self._bound[key] = made
            while len(self._bound) > KEPT_SIZES:
                self._bound.popitem(last=False)
        return made

    def _linked(self) -> tuple[dict[str, int], int]:
        if self._addresses is None:
            from polyc.emit.run_time import threadpool

            runtime = threadpool.handle(self.code.threads) if self.code.threads > 1 else 0
            self._addresses = self.code.link(), runtime or 0
            self._shared = Shared(runtime or 0)
        return self._addresses
