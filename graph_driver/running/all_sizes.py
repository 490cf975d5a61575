"""A model for all sizes in the ranges of its symbols: one code, an executor for the sizes of each call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.execution.parts import Parts
from polyc.graph_driver.graph.size import Extent, Size, evaluate
from polyc.graph_driver.planning.table import Table
from polyc.graph_driver.running.model import Built, Inputs, Model, Running
from polyc.graph_driver.running.specialising import Shapes
from polyc.poly.errors import ArgumentError, BuildError

if TYPE_CHECKING:
    from polyc.graph_driver.backends.protocol import Code
    from polyc.graph_driver.execution.executor import Executor

KEPT_SIZES = 64
"""How many combinations of sizes are remembered: a plan with its numbers each, no code."""


class AllSizes(Running):
    """A model compiled once for all sizes; its plan is the one at the representative sizes.

    The first call with new sizes evaluates the formulas (a millisecond or so); the last `KEPT_SIZES`
    combinations are remembered. All share one set of arenas, which grow to the largest.
    """

    def __init__(self, built: Built, code: Code, notes: list[str]) -> None:
        """`built` has the plan of formulas."""
        assert built.plan.symbols is not None
        self.formulas = self._plan = built.plan
        self.symbols, self._table = built.plan.symbols, Table(built.plan)
        self._built = replace(built, plan=built.plan.at(self.symbols.typical))
        self._code, self._notes = code, notes
        self._bound: OrderedDict[Shapes, Executor] = OrderedDict()
        self._binding = threading.Lock()
        self._latest: Executor | None = None
        slots = [self._plan.slots[n] for n in self._plan.inputs]
        self._wanted = [(s.name, None if s.dtype is None else _named(s.shape or ())) for s in slots]

    @property
    def built(self) -> Built:
        """What was compiled."""
        return self._built

    def compiled_by(self, anew: Callable[[], Built]) -> None:
        """Where graph and groups come from when somebody wants them."""
        self._built = replace(self._built, anew=anew)

    @property
    def code(self) -> Code:
        """That of the plan."""
        return self._code

    def executor(self) -> Executor:
        """The program at the representative sizes."""
        return self.at(self.symbols.typical)

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The program for the sizes of these inputs; those that a guard excludes have one compiled for them, which is
        kept.

        Raises:
            ArgumentError: the sizes contradict the model or each other, or are outside of what the model was compiled
                for (the guard is named) and it may not be specialised.
        """
        key = self._key(inputs)
        if self.specialiser and (special := self.specialiser.kept(key)) is not None:
            return special.for_inputs(inputs)
        try:
            return self._bound.get(key) or self._new(key)
        except ArgumentError as refusal:
            return self._special(key, refusal).for_inputs(inputs)

    def special_for(self, inputs: Mapping[str, Any]) -> Model | None:
        """The model for the shapes of these inputs alone, where there is one or must be. Raises `ArgumentError`."""
        key = self._key(inputs)
        if self.specialiser and (special := self.specialiser.kept(key)) is not None:
            return special
        try:
            if key not in self._bound:
                self._new(key)
        except ArgumentError as refusal:
            return self._special(key, refusal)
        return None

    def _special(self, key: Shapes, refusal: ArgumentError) -> Model:
        """The model for shapes that this one refuses. Raises `ArgumentError`."""
        if self.specialiser is None:
            raise ArgumentError(
                f"{refusal}; a compiled directory keeps no operators to compile for other sizes: load the ONNX "
                f"file with polyc.compile_model, or compile it with these sizes (--dim)"
            ) from None
        if not self.specialiser.at_calls or not self.specialiser.allows(key):
            raise refusal
        return self.specialiser.get(key, str(refusal))

    def specialise(self, sizes: Mapping[str, int]) -> Model:
        """As `Model.specialise`. Raises `ArgumentError`, `BuildError`."""
        if self.specialiser is None:
            raise BuildError("the model was loaded from a compiled directory: specialise the ONNX file instead")
        key = self._shapes_at(sizes)
        why = "asked for"
        try:
            self.symbols.check(sizes)
        except ArgumentError as refusal:
            if not self.specialiser.allows(key):
                raise
            why = str(refusal)
        return self.specialiser.get(key, why)

    def parts(self, alone: frozenset[int]) -> Parts:
        """The plan cut around the steps `alone`, with the code of its parts: the same at all sizes."""
        return self._code.parts(self._plan, alone)

    def shapes_text(self) -> str:
        """The inputs with their sizes, symbolic ones by name."""
        return ", ".join(f"{n}[{', '.join(map(str, self._shape(n)))}]" for n in self._plan.inputs)

    def shape_of(self, name: str) -> tuple[int | str | None, ...] | None:
        """As `Model.shape_of`."""
        keys = {n: r.key for n, r in self.symbols.ranges.items()}
        shape = self._shape(name) if name in self._plan.slots else ()
        return tuple(n if isinstance(n, int) else keys.get(str(n)) for n in shape)

    def _shape(self, name: str) -> tuple[Extent, ...]:
        """A tensor's shape as formulas."""
        return self._plan.slots[name].shape or ()

    def _key(self, inputs: Mapping[str, Any]) -> Shapes:
        """The inputs' shapes in the plan's order."""
        try:
            return tuple([inputs[n].shape for n in self._plan.inputs])
        except (KeyError, AttributeError):
            return self._shapes(inputs)

    def at(self, values: Mapping[str, int]) -> Executor:
        """The program for these values of the symbols. Raises `ArgumentError`."""
        key = self._shapes_at(values)
        return self._bound.get(key) or self._bind(key, values)

    def _shapes_at(self, values: Mapping[str, int]) -> Shapes:
        """The inputs' shapes for these values of the symbols. Raises `ArgumentError` when one is not given."""
        missing = [n for n in self.symbols.ranges if n not in values]
        if missing:
            raise ArgumentError(f"size {missing[0]} is not given")
        return tuple(tuple(evaluate(n, values) for n in self._shape(name)) for name in self._plan.inputs)

    def inputs_for(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> Inputs:
        """As `Model.inputs_for`: sizes that neither an array nor `sizes` fixes are the representative ones."""
        plan, values = self._built.plan, self.symbols.typical | self._fixed(given, sizes)
        return {n: (plan.slots[n].dtype or "", tuple(evaluate(e, values) for e in self._shape(n))) for n in plan.inputs}

    def chosen_sizes(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes by their names in the model that `inputs_for` chooses because nothing fixes them."""
        fixed = self._fixed(given, sizes)
        return {r.key: r.typical for n, r in self.symbols.ranges.items() if n not in fixed}

    def _fixed(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> dict[str, int]:
        """Values of the symbols that arrays of the shapes `given`, or `sizes`, fix. Raises `ArgumentError`."""
        ranges = self.symbols.ranges
        names = {r.key: n for n, r in ranges.items()} | {n: n for n in ranges}
        unknown = [n for n in sizes if n not in names]
        if unknown:
            known = ", ".join(r.key for r in ranges.values())
            raise ArgumentError(f"the model has no symbolic size '{unknown[0]}'; it has {known}")
        values = {}
        for name, shape in given.items():
            for want, n in zip(self._shape(name) if name in self._plan.inputs else (), shape):
                if isinstance(want, Size):
                    values[str(want)] = int(n)
        return values | {names[n]: v for n, v in sizes.items()}

    def _shapes(self, inputs: Mapping[str, Any]) -> Shapes:
        missing = [n for n in self._plan.inputs if n not in inputs]
        if missing:
            raise ArgumentError(f"input '{missing[0]}' is missing")
        return tuple(np.shape(inputs[n]) if self._plan.slots[n].dtype else () for n in self._plan.inputs)

    def _check(self, key: Shapes) -> dict[str, int]:
        """The symbols' values for these shapes. Raises `ArgumentError`: they contradict the model or each other."""
        values: dict[str, tuple[int, str]] = {}
        for (name, wanted), shape in zip(self._wanted, key, strict=True):
            if wanted is None:
                continue
            if len(shape) != len(wanted):
                raise ArgumentError(
                    f"input '{name}' has shape {list(shape)}, the model was compiled for {_listed(wanted)}"
                )
            for axis, (want, given) in enumerate(zip(wanted, shape)):
                known, origin = (want, "") if isinstance(want, int) else values.setdefault(want, (int(given), name))
                if known != given:
                    where = f" ({want} = {known} in input '{origin}')" if origin else ""
                    raise ArgumentError(
                        f"input '{name}' has size {given} on axis {axis}, the model was compiled for "
                        f"{_listed(wanted)}{where}"
                    )
        return {n: value for n, (value, _) in values.items()}

    def _new(self, key: Shapes) -> Executor:
        """The program for these shapes of the inputs. Raises `ArgumentError`."""
        return self._bind(key, self._check(key))

    def _bind(self, key: Shapes, values: Mapping[str, int]) -> Executor:
        self.symbols.check(values)
        plan, built = self._plan.at(values), self._built
        table = self._table.filled(plan, values)
        with self._binding:
            made = self._code.start_at(plan, built.weights, built.hosts, self._notes, table, self._latest)
            self._latest = self._bound[key] = made
            while len(self._bound) > KEPT_SIZES:
                self._bound.popitem(last=False)
        return made


def _named(shape: Sequence[Extent]) -> tuple[int | str, ...]:
    """Sizes as numbers and texts."""
    return tuple([n if isinstance(n, int) else str(n) for n in shape])


def _listed(shape: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, shape))}]"
