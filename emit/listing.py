"""The texts of one kernel, each line with the line of the loops' text that it comes from.

The loop IR's text is the hub: its lines know their statements, and through these the loops of the
schedule tree and the statements of the Scop. C lines are traced while they are printed, LLVM
instructions through their debug locations, machine code through what is left of these locations
after LLVM's optimiser (`.loc` directives; an instruction that was merged from several has none).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from polyc.emit.c.source import to_c_lines
from polyc.emit.llvm import jit
from polyc.emit.llvm.ir import to_llvm
from polyc.emit.loop_ir.loops import Function, Stmt
from polyc.emit.loop_ir.printer import Line, to_lines
from polyc.emit.passes.matrices_in_memory import matrices_in_memory
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget, Target

_LOCATION = re.compile(r"^(!\d+) = !DILocation\(line: (\d+),")
_ATTACHED = re.compile(r", !dbg (!\d+)$")
_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\b")
_FOR_DEBUGGERS = re.compile(r"^\s*(\.(loc|file|cfi_\w+)\b|\.section\s+\.debug)|^\.L(tmp|func_begin)\d+:")


@dataclass(frozen=True, slots=True)
class Traced:
    """A line of generated text; `origin` is the 1-based line of the loops' text, 0 when there is none."""

    text: str
    origin: int


@dataclass(frozen=True)
class Listing:
    """All texts of a kernel. `loops` is the hub that the others refer to: `c`, `llvm` and `asm`, or those of a GPU."""

    loops: tuple[Line, ...]
    texts: Mapping[str, tuple[Traced, ...]]


def listing(fn: Function, target: Target) -> Listing:
    """The texts of a finished kernel (after `polyc.emit.mathlib.expand_function`).

    Raises:
        BuildError: there is no C or LLVM IR for it.
    """
    loops, numbers = _hub(fn)
    with_lines = to_llvm(fn, target, numbers)
    texts = {
        "c": tuple(Traced(text, _number(numbers, stmt)) for text, stmt in to_c_lines(matrices_in_memory(fn), target)),
        "llvm": _llvm_lines(to_llvm(fn, target), with_lines),
        "asm": assembly_lines(jit.assembly(with_lines, target)),
    }
    return Listing(loops, texts)


def loops_listing(fn: Function) -> Listing:
    """The loops alone, of a kernel whose code is no text that follows them line by line."""
    return Listing(_hub(fn)[0], {})


def gpu_listing(fn: Function, target: GpuTarget) -> Listing:
    """The loops and the CUDA or OpenCL text of the kernels of a GPU function.

    Raises:
        BuildError: there is no such text for it.
    """
    from polyc.emit.gpu.text.source import to_gpu_lines

    loops, numbers = _hub(fn)
    lines = to_gpu_lines(fn, target)
    return Listing(loops, {target.kind: tuple(Traced(text, _number(numbers, stmt)) for text, stmt in lines)})


def _hub(fn: Function) -> tuple[tuple[Line, ...], dict[int, int]]:
    """The loops' text, and the line of each statement by its identity."""
    loops = to_lines(fn)
    numbers: dict[int, int] = {}
    for number, line in enumerate(loops, 1):
        if line.stmt is not None:
            numbers.setdefault(id(line.stmt), number)
    return tuple(loops), numbers


def _number(numbers: dict[int, int], stmt: Stmt | None) -> int:
    return 0 if stmt is None else numbers.get(id(stmt), 0)


def _llvm_lines(plain: str, located: str) -> tuple[Traced, ...]:
    """The text without debug information; both texts have the same lines before their metadata."""
    places = {m[1]: int(m[2]) for m in map(_LOCATION.match, located.splitlines()) if m}
    lines = []
    for text, twin in zip(plain.splitlines(), located.splitlines(), strict=False):
        found = _ATTACHED.search(twin)
        lines.append(Traced(text, places.get(found[1], 0) if found else 0))
    return tuple(lines)


def assembly_lines(text: str) -> tuple[Traced, ...]:
    """Assembly without directives for debuggers, its instructions located by the `.loc` before them."""
    lines: list[Traced] = []
    at = 0
    for line in text.splitlines():
        found = _LOC.match(line)
        if found:
            at = int(found[1])
        if _FOR_DEBUGGERS.match(line):
            continue
        if line and not line[0].isspace():  # a label: another block, or another function
            at = at if line.startswith(".L") else 0
            lines.append(Traced(line, 0))
        else:
            instruction = line.strip() and not line.strip().startswith((".", "#"))
            lines.append(Traced(line, at if instruction else 0))
    return tuple(lines)
