"""The machine in NumPy: reads instruction text, runs it, counts cycles and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.parser import parse
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import BuildError
from polyc_toy.expressions import Expression
from polyc_toy.machine import Toy

ACCESS = re.compile(r"\s*(\w+)\[(.*?)\]\s*")


class ScratchpadError(BuildError):
    """An instruction needs more of the scratchpad than there is."""


@dataclass
class Counts:
    """What runs took: cycles by unit, bytes that the DMA and the scalar unit moved to and from memory, and the most of
    the scratchpad that was taken at one time."""

    cycles: dict[str, int] = field(default_factory=lambda: {"dma": 0, "matrix": 0, "scalar": 0})
    moved: int = 0
    scratchpad: int = 0
    products: int = 0

    @property
    def total(self) -> int:
        """All cycles: the units of this machine do not work at the same time."""
        return sum(self.cycles.values())

    def __str__(self) -> str:
        each = ", ".join(f"{n} {unit}" for unit, n in self.cycles.items())
        return f"{self.total} cycles ({each}), {self.moved} bytes moved, {self.scratchpad} bytes of scratchpad"


_open: list[Counts] = []


@contextmanager
def counting() -> Iterator[Counts]:
    """Counts of everything that runs inside of the block."""
    counts = Counts()
    _open.append(counts)
    try:
        yield counts
    finally:
        _open.remove(counts)


class Program:
    """Instruction text, ready to run. Raises `BuildError`: it is none."""

    def __init__(self, text: str, machine: Toy) -> None:
        body, *pieces = re.split(r"^loops \d+\n", text, flags=re.MULTILINE)
        lines = [line.strip() for line in body.splitlines()]
        if not lines or lines[0] != "toy 1":
            raise BuildError("this is no program of the toy accelerator")
        self.machine = machine
        self.pieces = [parse(piece) for piece in pieces]
        given = [line.split()[1:] for line in lines if line.startswith("argument ")]
        self.arguments = [(name, BY_NAME[dtype], tuple(map(int, shape))) for name, dtype, *shape in given]
        self._steps, left = self._block([line for line in lines[1:] if not line.startswith("argument ")])
        if left:
            raise BuildError(f"'{left[0]}' ends nothing")

    def __call__(self, arrays: Sequence[np.ndarray]) -> None:
        """Run on the bytes of the arguments, in their order. Raises `ScratchpadError`."""
        state = State(self.machine)
        for (name, dtype, shape), memory in zip(self.arguments, arrays, strict=True):
            count = int(np.prod(shape, dtype=int)) * dtype.bytes
            state.arrays[name] = memory[:count].view(dtype.np).reshape(shape)
        with np.errstate(all="ignore"):
            self._steps(state)
        for counts in _open:
            state.add_to(counts)

    def _block(self, lines: list[str]) -> tuple[Step, list[str]]:
        """Instructions up to the `end`, `else` or end of the text that closes them, and the lines from there."""
        steps: list[Step] = []
        while lines and lines[0] not in ("end", "else"):
            step, lines = self._instruction(lines)
            steps.append(step)

        def run(state: State) -> None:
            for step in steps:
                step(state)

        return run, lines

    def _instruction(self, lines: list[str]) -> tuple[Step, list[str]]:
        word, _, rest = lines[0].partition(" ")
        if word == "loop":
            var, text = rest.split(" ", 1)
            lo, hi = (Expression(t) for t in _two(text))
            body, left = self._block(lines[1:])
            return _loop(var, lo, hi, body), left[1:]
        if word == "if":
            condition, (then, left) = Expression(rest), self._block(lines[1:])
            orelse, left = self._block(left[1:]) if left[0] == "else" else (_nothing, left)
            return lambda s: (then if condition(s.values) else orelse)(s), left[1:]
        simple: Mapping[str, Callable[[str], Step]] = {
            "alloc": lambda t: _alloc(t, True), "memory": lambda t: _alloc(t, False),
            "free": lambda t: lambda s: s.free(t), "dma": _dma, "mma": _mma,
            "scalar": lambda t: _scalar(self.pieces[int(t)]),
        }  # fmt: skip
        if word not in simple:
            raise BuildError(f"the toy accelerator has no instruction '{word}'")
        return simple[word](rest), lines[1:]


@dataclass
class State:
    """Memory, loop variables and counts of one run."""

    machine: Toy
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    near: dict[str, int] = field(default_factory=dict)  # bytes of what is in the scratchpad
    counts: Counts = field(default_factory=Counts)

    def alloc(self, name: str, dtype: Any, shape: tuple[int, ...], near: bool) -> None:
        """A new array, poisoned. Raises `ScratchpadError`."""
        self.arrays[name] = interp.poisoned(shape, dtype)
        if not near:
            return
        self.near[name] = self.arrays[name].nbytes
        taken = sum(self.near.values())
        if taken > self.machine.scratchpad:
            raise ScratchpadError(
                f"{self.machine.name}: '{name}' makes {taken} bytes, the scratchpad has {self.machine.scratchpad}"
            )
        self.counts.scratchpad = max(self.counts.scratchpad, taken)

    def free(self, name: str) -> None:
        """The array is gone."""
        del self.arrays[name]
        self.near.pop(name, None)

    def add_to(self, counts: Counts) -> None:
        """Add this run to a sum of runs."""
        for unit, cycles in self.counts.cycles.items():
            counts.cycles[unit] += cycles
        counts.moved += self.counts.moved
        counts.products += self.counts.products
        counts.scratchpad = max(counts.scratchpad, self.counts.scratchpad)


Step = Callable[[State], None]


def _nothing(state: State) -> None:
    pass


def _two(text: str) -> tuple[str, str]:
    """Two expressions with a blank between them: `0 min(16, n)`."""
    for k, c in enumerate(text):
        if c == " " and text[:k].count("(") == text[:k].count(")"):
            try:
                Expression(text[:k]), Expression(text[k:])
            except BuildError:
                continue
            return text[:k], text[k:]
    raise BuildError(f"'{text}' are no two bounds")


def _loop(var: str, lo: Expression, hi: Expression, body: Step) -> Step:
    def run(state: State) -> None:
        for value in range(lo(state.values), hi(state.values)):
            state.values[var] = value
            body(state)

    return run


def _alloc(text: str, near: bool) -> Step:
    name, dtype, *shape = text.split()
    return lambda state: state.alloc(name, BY_NAME[dtype], tuple(map(int, shape)), near)


class Tile:
    """The part of an array that an access goes through in loops: one dimension for each of their variables."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        found = ACCESS.fullmatch(text)
        if found is None:
            raise BuildError(f"'{text}' is no access")
        self.array = found[1]
        self.index = [Expression(t) for t in _commas(found[2])]
        self.names = names

    def view(self, state: State, ranges: Mapping[str, range]) -> np.ndarray:
        """The elements, the dimensions in the order of the loops; of a loop that it does not go along, one."""
        start = state.values | {v: r.start for v, r in ranges.items()}
        first = [index(start) for index in self.index]
        array, axes = state.arrays[self.array], {}
        slices: list[slice | int] = []
        for k, index in enumerate(self.index):
            steps = {v: index(start | {v: r.start + 1}) - first[k] for v, r in ranges.items()}
            along = [v for v, step in steps.items() if step]
            if not along:
                slices.append(first[k])
                continue
            (v,), n = along, len(ranges[along[0]])
            last = first[k] + steps[v] * (n - 1)
            if min(first[k], last) < 0 or max(first[k], last) >= array.shape[k]:
                raise BuildError(f"'{self.array}' has {array.shape[k]} elements, not one with number {last}")
            axes[v] = len(axes)
            end = last + (1 if steps[v] > 0 else -1)
            slices.append(slice(first[k], None if end < 0 else end, steps[v]))
        part = array[tuple(slices)]
        order = [axes[v] for v in self.names if v in axes]
        shape = [len(ranges[v]) if v in axes else 1 for v in self.names]
        return part.transpose(order).reshape(shape) if not order else _expanded(part.transpose(order), axes, self.names)


def _expanded(part: np.ndarray, axes: Mapping[str, int], names: Sequence[str]) -> np.ndarray:
    return part[tuple(slice(None) if v in axes else None for v in names)]


def _commas(text: str) -> list[str]:
    """What stands between the commas outside of parentheses."""
    out, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        out = [*out, ""] if c == "," and not depth else [*out[:-1], out[-1] + c]
    return [t for t in out if t.strip()]


def _ranges(text: str) -> Callable[[State], dict[str, range]]:
    """`i in 0 .. 16, j in 0 .. n`."""
    found = [(v.strip(), *bounds.split("..")) for v, bounds in (t.split(" in ") for t in _commas(text))]
    made = [(v, Expression(lo), Expression(hi)) for v, lo, hi in found]
    return lambda state: {v: range(lo(state.values), hi(state.values)) for v, lo, hi in made}


def _dma(text: str) -> Step:
    head, body = text.split(":", 1)
    ranges, names = _ranges(head), [t.split(" in ")[0].strip() for t in _commas(head)]
    target, source = (Tile(t, names) for t in body.split(" = "))

    def run(state: State) -> None:
        over = ranges(state)
        if not all(map(len, over.values())):
            return
        part = source.view(state, over)
        np.copyto(target.view(state, over), part)
        state.counts.moved += part.nbytes
        state.counts.cycles["dma"] += state.machine.dma_start + -(-part.nbytes // state.machine.bus)

    return run


def _mma(text: str) -> Step:
    head, body = text.split(":", 1)
    ranges, names = _ranges(head), [t.split(" in ")[0].strip() for t in _commas(head)]
    result, product = body.split(" += ")
    factor, other = product.split("] * ")  # subscripts may have products, too
    target, left, right = (Tile(t, names) for t in (result, f"{factor}]", other))

    def run(state: State) -> None:
        over = ranges(state)
        if not all(map(len, over.values())):
            return
        if any(len(r) > state.machine.unit for r in over.values()):
            raise BuildError(f"{state.machine.name} multiplies at most {state.machine.unit} of each, not {over}")
        into = target.view(state, over)
        summed = tuple(k for k, n in enumerate(into.shape) if n == 1 and len(over[names[k]]) > 1)
        products = left.view(state, over) * right.view(state, over)
        into += products.sum(axis=summed, keepdims=True, dtype=np.float32)
        state.counts.products += products.size
        state.counts.cycles["matrix"] += state.machine.unit_cycles

    return run


def _scalar(fn: Function) -> Step:
    width = {b.name: b.dtype.bytes for b in fn.buffers}

    def run(state: State) -> None:
        arrays = {b.name: state.arrays[b.name] for b in fn.buffers}
        count = [0, 0]

        def access(name: str, element: tuple[int, ...], write: bool) -> None:
            count[0] += 1
            count[1] += 0 if name in state.near else width.get(name, 0)

        interp.run(fn, arrays, {p: state.values[p] for p in fn.params}, accesses=access)
        state.counts.cycles["scalar"] += count[0]
        state.counts.moved += count[1]

    return run
