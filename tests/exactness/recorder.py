"""What a plain-Python run really does: every load and store with the loop variables at that moment.

Independent of polyc's front end: Python runs the function, arrays are wrapped, and the
interpreter's own trace hook tells which line and which local variables each access belongs
to. (Local scalars are seen as the interpreter's LOAD_FAST and STORE_FAST.)
"""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Event:
    """One access: `name` (of the variable), `element` (None: the whole array is made), and where."""

    name: str
    element: tuple[int, ...] | None
    write: bool
    line: int
    variables: Mapping[str, int]


class Traced:
    """A NumPy array that reports every access of an element."""

    def __init__(self, array: np.ndarray, recorder: Recorder) -> None:
        self.array, self.recorder = array, recorder
        self.dtype, self.shape, self.ndim = array.dtype, array.shape, array.ndim

    def _index(self, index: Any) -> tuple[int, ...]:
        whole = index if isinstance(index, tuple) else (index,)
        assert len(whole) == self.array.ndim
        return tuple(int(i) % n for i, n in zip(whole, self.array.shape))

    def __getitem__(self, index: Any) -> Any:
        self.recorder.access(self, self._index(index), False)
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.recorder.access(self, self._index(index), True)
        self.array[index] = value


class Counted(int):
    """The value of a loop's variable, and the number of its iteration: what the Scop's iterator is where a loop has a
    step."""

    number: int

    @staticmethod
    def range(*bounds: int) -> Any:
        plain = range(*bounds)
        return plain if abs(plain.step) == 1 else Counted._all(plain)

    @staticmethod
    def _all(values: range) -> Iterator[Counted]:
        for number, value in enumerate(values):
            counted = Counted(value)
            counted.number = number
            yield counted


class Recorder:
    """Runs a function once and keeps its events in order. `watch`: local scalars to look at."""

    def __init__(self, fn: FunctionType, sizes: Mapping[str, int], watch: frozenset[str]) -> None:
        self.fn = fn
        self.sizes = sizes
        self.watch = watch
        self.raw: list[tuple[Traced | str, tuple[int, ...] | None, bool, int, Mapping[str, int]]] = []
        self.code = fn.__code__
        self.at = {i.offset: i for i in dis.get_instructions(fn)}
        self.frame: FrameType | None = None
        self.line = 0
        self.names: dict[int, str] = {}
        self.stored: str | None = None

    def run(self, arguments: Mapping[str, Any]) -> list[Event]:
        """The events of one call; arrays among the arguments are copied first."""
        made = {"empty": self._empty, "zeros": self._zeros, "full": self._full, "grid": _grid, "range": Counted.range}
        world = {**self.fn.__globals__, **self.sizes, **made}
        fn = FunctionType(self.code, world, self.fn.__name__, self.fn.__defaults__, self.fn.__closure__)
        fn.__kwdefaults__ = self.fn.__kwdefaults__
        self.kept: list[Traced] = []  # so that no two arrays have one id
        given = {k: Traced(v.copy(), self) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        for name, value in given.items():
            self._name(name, value)
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            fn(**given)
        finally:
            sys.settrace(before)
        return [
            Event(who if isinstance(who, str) else self.names[id(who)], element, write, line, variables)
            for who, element, write, line, variables in self.raw
        ]

    def access(self, array: Traced, element: tuple[int, ...], write: bool) -> None:
        """Called by the arrays."""
        self.raw.append((array, element, write, self.line, self._variables()))

    def _variables(self) -> Mapping[str, int]:
        assert self.frame is not None
        values = self.frame.f_locals.items()
        return {k: v.number if isinstance(v, Counted) else v for k, v in values if type(v) in (int, Counted)}

    def _empty(self, shape: Any, dtype: Any) -> Traced:
        return Traced(np.full(shape, 1, dtype.np), self)

    def _zeros(self, shape: Any, dtype: Any) -> Traced:
        return self._full(shape, 0, dtype)

    def _full(self, shape: Any, value: Any, dtype: Any) -> Traced:
        array = Traced(np.full(shape, value, dtype.np), self)
        self.raw.append((array, None, True, self.line, {}))
        return array

    def _call(self, frame: FrameType, kind: str, _: Any) -> Any:
        if frame.f_code is not self.code:
            return None
        self.frame = frame
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, kind: str, _: Any) -> Any:
        if self.stored is not None:
            self._name(self.stored, frame.f_locals.get(self.stored))
            self.stored = None
        if kind == "opcode":
            instruction = self.at[frame.f_lasti]
            if instruction.opname == "STORE_FAST":
                self.stored = instruction.argval
            if instruction.positions is not None and instruction.positions.lineno is not None:
                self.line = instruction.positions.lineno
            if instruction.argval in self.watch and instruction.opname in ("LOAD_FAST", "STORE_FAST"):
                write = instruction.opname == "STORE_FAST"
                self.raw.append((instruction.argval, (), write, self.line, self._variables()))
        return self._step

    def _name(self, name: str, value: Any) -> None:
        """A variable now holds an array."""
        if isinstance(value, Traced) and self.names.setdefault(id(value), name) == name:
            self.kept.append(value)


def _grid(*extents: Any) -> Any:
    return itertools.product(*[Counted.range(*e) if isinstance(e, tuple) else range(e) for e in extents])
