"""Calls of a model whose caches grow: it keeps them, with room ahead, from call to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.graph.size import Extent, evaluate
from polyc.graph_driver.growing.with_room import with_room
from polyc.graph_driver.importing.reading import read
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError, BuildError

LEAST = 64  # rows of a first cache


class Growing:
    """A model and its caches. A call gives all inputs but them, and returns all outputs but them.

    The caches have room for more rows than are in use, and twice as much whenever that is too little: what is there is
    copied once for each doubling, and a call writes its own rows. `model` is the compiled model.
    """

    def __init__(self, source: str | Path | onnx.ModelProto | bytes, **options: Any) -> None:
        """`options` are those of `compile_model`; the caches may be empty at first (`dims` says otherwise).

        Raises:
            ModelError: the model has no caches that grow, or as `compile_model`.
            BuildError: its sizes cannot stay symbolic.
        """
        made, self.caches = with_room(read(source)[0])
        dims = {c.size: (0, None) for c in self.caches} | dict(options.pop("dims", None) or {})
        self.model: Model = compile_model(made, dims=dims, **options)
        plan = self.model.running.formulas
        if plan is None:
            raise BuildError("caches grow in models whose sizes stay symbolic, which this one's cannot")
        self._named = {n: _names(plan.slots[n].shape or ()) for n in plan.inputs if n in plan.slots}
        self._counts = {c.size: plan.values[c.used][0] for c in self.caches}  # formulas, once for each size
        self._room: dict[str, np.ndarray] = {}
        self._rows = np.zeros(LEAST, np.bool_)
        self.used = {c.size: 0 for c in self.caches}

    def start(self, caches: Mapping[str, np.ndarray]) -> None:
        """Go on from these caches, by the names of the inputs: what another run has made.

        Raises:
            ArgumentError: one is missing, or they have different lengths.
        """
        for c in self.caches:
            if c.past not in caches:
                raise ArgumentError(f"cache '{c.past}' is missing")
        for size in self.used:
            lengths = {caches[c.past].shape[c.axis] for c in self.caches if c.size == size}
            if len(lengths) > 1:
                raise ArgumentError(f"caches of one length {size} have the lengths {sorted(lengths)}")
            self.used[size] = lengths.pop()
        for c in self.caches:
            self._room[c.past] = _with_rows(caches[c.past], c.axis, self.used[c.size], 2 * self.used[c.size] + LEAST)

    def cache(self, name: str) -> np.ndarray:
        """The rows in use of a cache, by the name of its input: a view, which the next call may leave behind.

        Raises:
            ArgumentError: there is no such cache, or nothing has been given to start with.
        """
        c = next((c for c in self.caches if name in (c.past, c.present)), None)
        if c is None or c.past not in self._room:
            raise ArgumentError(f"there is no cache '{name}'")
        return self._room[c.past][(*(slice(None),) * c.axis, slice(self.used[c.size]))]

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One more call.

        Raises:
            ArgumentError: inputs do not fit, or nothing has been given to start with.
        """
        if not self._room:
            raise ArgumentError("nothing is there to go on from: give start() the caches of a first run")
        given = {f"{size}.rows": self._rows_of(used) for size, used in self.used.items()}
        wanted = self._lengths({**inputs, **given})
        for c in self.caches:
            array = self._room[c.past]
            if array.shape[c.axis] < wanted[c.size]:
                room = 2 * wanted[c.size]
                self._room[c.past] = _with_rows(array, c.axis, self.used[c.size], room)
        arrays = {c.past: self._room[c.past] for c in self.caches}
        out = {c.present: self._room[c.past] for c in self.caches}
        results = self.model({**inputs, **given, **arrays}, out=out)
        self.used = wanted
        ours = {name for c in self.caches for name in (c.present, c.used)}
        return {n: v for n, v in results.items() if n not in ours}

    def _rows_of(self, count: int) -> np.ndarray:
        """An array of this length, of which nobody reads an element."""
        if count > len(self._rows):
            self._rows = np.zeros(2 * count, np.bool_)
        return self._rows[:count]

    def _lengths(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """How many rows are in use after a call with these inputs."""
        values: dict[str, int] = {}
        for name, value in inputs.items():
            if places := self._named.get(name):
                shape = np.shape(value)
                for axis, size in places:
                    if axis < len(shape):
                        values[size] = shape[axis]
        try:
            return {size: n if isinstance(n, int) else evaluate(n, values) for size, n in self._counts.items()}
        except KeyError as missing:
            raise ArgumentError(f"no input says what the size {missing.args[0]} is") from None


def _names(shape: Sequence[Extent]) -> tuple[tuple[int, str], ...]:
    """The axes of a shape that have names, with these."""
    return tuple((axis, str(n)) for axis, n in enumerate(shape) if not isinstance(n, int))


def _with_rows(array: np.ndarray, axis: int, used: int, room: int) -> np.ndarray:
    """An array with room for so many rows, the first as they are, zeros behind."""
    made = np.zeros((*array.shape[:axis], room, *array.shape[axis + 1 :]), array.dtype)
    part = (*(slice(None),) * axis, slice(used))
    made[part] = array[part]
    return made
