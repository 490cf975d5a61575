"""What the host does for a GPU function, as plain data: arrays of the device and a list of launches.

Host code decides with sizes only, never with data, so for given sizes a function is one fixed
sequence of launches. Executors need no compiled host code, and may record the sequence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Literal

from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Launch, Let, Stmt
from polyc.poly.binding import evaluate
from polyc.poly.dtypes import BY_NAME, DType
from polyc.poly.errors import ArgumentError, BuildError
from polyc.poly.records import dataclass
from polyc.poly.violations import Violation


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of a kernel: an array of the device by its name in the function, or an i64.

    `align`: the start of the array must be a multiple of so many bytes (of its widest access)."""

    name: str
    kind: Literal["array", "size"]
    dtype: DType
    writable: bool = False
    align: int = 1


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One kernel of a program. `name` is its symbol, `threads` those of a block (x, y, z);
    `dynamic_shared` bytes are asked for at launch, `shared` is all that the text declares."""

    name: str
    arguments: tuple[Argument, ...]
    threads: tuple[int, int, int]
    shared: int
    dynamic_shared: int
    barriers: bool


@dataclass(frozen=True)
class KernelText:
    """The text of some kernels; `kernels` goes by the launches' names."""

    language: Literal["cuda", "opencl"]
    text: str
    kernels: Mapping[str, KernelInfo]


@dataclass(frozen=True)
class Program(KernelText):
    """The kernels of a function, and the function that says when they are launched."""

    function: Function


@dataclass(frozen=True, slots=True)
class Call:
    """One launch: array arguments by name, sizes by value."""

    kernel: KernelInfo
    grid: tuple[int, int, int]
    arguments: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """What running with given sizes needs: bytes of the device arrays that the function makes for
    itself, and the launches in order."""

    scratch: Mapping[str, int]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Recorded:
    """Kernels and the sequence of launches for sizes that are fixed: all that a model needs of them.

    `record` is the array in which they tell of accesses outside, a u64 for each of `checks`: what the violation is
    but for the index. It is the caller's, and zero before the launches. Empty when there is nothing to check.
    """

    text: KernelText
    sequence: Sequence
    record: str = ""
    checks: tuple[Violation, ...] = ()

    def to_json(self) -> str:
        """As text."""
        kernels = [
            {
                **asdict(k),
                "launch": launch,
                "arguments": [[a.name, a.kind, a.dtype.name, a.writable, a.align] for a in k.arguments],
            }
            for launch, k in self.text.kernels.items()
        ]
        numbers = {k.name: n for n, k in enumerate(self.text.kernels.values())}
        calls = [[numbers[c.kernel.name], c.grid, c.arguments] for c in self.sequence.calls]
        data = {"language": self.text.language, "text": self.text.text, "kernels": kernels, "calls": calls,
                "scratch": dict(self.sequence.scratch), "record": self.record,
                "checks": [[c.axis, c.size, c.argument, c.outer] for c in self.checks]}  # fmt: skip
        return json.dumps(data)

    @staticmethod
    def from_json(text: str) -> Recorded:
        """Back from text. Raises `ValueError`, `KeyError` or `TypeError` when it is not one."""
        data = json.loads(text)
        kernels = {}
        for k in data["kernels"]:
            arguments = tuple(Argument(n, kind, BY_NAME[t], bool(w), int(a)) for n, kind, t, w, a in k["arguments"])
            x, y, z = k["threads"]
            kernels[str(k["launch"])] = KernelInfo(
                str(k["name"]), arguments, (x, y, z), int(k["shared"]), int(k["dynamic_shared"]), bool(k["barriers"])
            )
        order = list(kernels.values())
        calls = tuple(Call(order[n], (x, y, z), tuple(a)) for n, (x, y, z), a in data["calls"])
        checks = tuple(
            Violation(0, int(axis), int(size), None if array is None else int(array), int(outer))
            for axis, size, array, outer in data["checks"]
        )
        text_of = KernelText(data["language"], data["text"], kernels)
        return Recorded(text_of, Sequence(data["scratch"], calls), str(data["record"]), checks)


def recorded(program: Program) -> Recorded:
    """The kernels and launches of a function without parameters.

    Raises:
        BuildError: the host code needs something that only the device knows.
    """
    function = program.function
    text = KernelText(program.language, program.text, program.kernels)
    if not function.checks:
        return Recorded(text, sequence(program, {}))
    shapes = {b.name: [evaluate(e, {}) for e in b.shape] for b in function.buffers}
    numbers = {name: k for k, name in enumerate(shapes)}
    checks = tuple(
        Violation(
            0, c.axis, evaluate(c.size, {}), numbers.get(c.array), math.prod(shapes.get(c.array, ())[: c.axis])
        )
        for c in function.checks
    )  # fmt: skip
    return Recorded(text, sequence(program, {}), function.buffers[-1].name, checks)


def sequence(program: Program, sizes: Mapping[str, int]) -> Sequence:
    """The launches for these values of the function's parameters.

    Raises:
        BuildError: the host code needs something that only the device knows.
    """
    scratch: dict[str, int] = {}
    return Sequence(scratch, tuple(_calls(program, program.function.body, dict(sizes), scratch)))


def _calls(program: Program, stmt: Stmt, values: dict[str, int], scratch: dict[str, int]) -> Iterator[Call]:
    if isinstance(stmt, Block):
        for s in stmt.stmts:
            yield from _calls(program, s, values, scratch)
    elif isinstance(stmt, For):
        if stmt.kind != "serial":
            raise BuildError(
                f"loop '{stmt.loop or stmt.var}' around kernels is {stmt.kind}; the host's loops are serial"
            )
        for v in range(_value(stmt.lo, values), _value(stmt.hi, values), stmt.step):
            yield from _calls(program, stmt.body, {**values, stmt.var: v}, scratch)
    elif isinstance(stmt, If):
        chosen = stmt.then if _value(stmt.cond, values) else stmt.orelse
        if chosen is not None:
            yield from _calls(program, chosen, values, scratch)
    elif isinstance(stmt, Let):
        yield from _calls(program, stmt.body, {**values, stmt.name: _value(stmt.value, values)}, scratch)
    elif isinstance(stmt, Alloc):
        count = math.prod(max(0, _value(e, values)) for e in stmt.buffer.shape)
        scratch[stmt.buffer.name] = max(scratch.get(stmt.buffer.name, 0), count * stmt.buffer.dtype.bytes, 1)
        yield from _calls(program, stmt.body, values, scratch)
    elif isinstance(stmt, Launch):
        grid = [_value(n, values) for _, n in stmt.grid]
        if min(grid) > 0:
            kernel = program.kernels[stmt.name]
            arguments = tuple(a.name if a.kind == "array" else values[a.name] for a in kernel.arguments)
            x, y, z = (*grid, 1, 1)[:3]
            yield Call(kernel, (x, y, z), arguments)
    else:
        raise BuildError(f"{type(stmt).__name__} stands outside of every kernel: the host of a GPU does not compute")


def _value(e: object, values: Mapping[str, int]) -> int:
    try:
        return evaluate(e, values)  # type: ignore[arg-type]
    except ArgumentError as error:
        raise BuildError(f"the host of a GPU cannot compute a bound: {error}") from None
