"""From the loops of a schedule to instructions: loops around buffers become loops of the machine, nests that copy a
buffer become DMA, nests that multiply buffers go to the matrix unit, everything else to the scalar unit.

    toy 1                                         an instruction a line
    argument A f32 40 20                          in the order in which a call gives them
    loop i_out 0 3 ... end                        also: if CONDITION ... else ... end
    alloc A_buf f32 16 16 ... free A_buf          in the scratchpad; `memory` for arrays that are local to the kernel
    dma a in 0 .. 16, b in 0 .. 4: A_buf[a, b] = A[16 * i_out + a, b]
    mma i in 0 .. 16, j in 0 .. 16, k in 0 .. 4: C_buf[i, j] += A_buf[i, k] * B_buf[k, j]
    scalar 0                                      the loops number 0 below, as polyc's loop IR
"""

from __future__ import annotations

from dataclasses import replace

from polyc.emit.loop_ir.linear import linear
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, If, Stmt, Store, walk
from polyc.emit.loop_ir.printer import exact_text, expr_text
from polyc.emit.loop_ir.rewrite import binders, stmt_exprs
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Call, Expr, Load, Var
from polyc.poly.expr import walk as parts
from polyc_toy.expressions import Expression
from polyc_toy.machine import Toy


def instructions(fn: Function, machine: Toy) -> str:
    """The text of a function whose sizes are numbers. Raises `BuildError`: the machine has no instructions for it."""
    return Generator(fn, machine).text()


class Generator:
    """The lines of one function; the loops that the scalar unit runs stand behind them."""

    def __init__(self, fn: Function, machine: Toy) -> None:
        self.fn, self.machine = fn, machine
        self.buffers = {b.name: b for b in fn.buffers}
        self.buffers |= {s.buffer.name: s.buffer for s in walk(fn.body) if isinstance(s, Alloc)}
        self.pieces: list[Function] = []

    def text(self) -> str:
        """The whole program."""
        head = ["toy 1", *(f"argument {declared(b)}" for b in self.fn.buffers)]
        lines = [*head, *self.of(self.fn.body, 0)]
        for number, piece in enumerate(self.pieces):
            lines += [f"loops {number}", exact_text(piece).rstrip("\n")]
        return "\n".join(lines) + "\n"

    def of(self, s: Stmt, depth: int) -> list[str]:
        """The instructions of a statement."""
        pad = "  " * depth
        if not self.near(s):
            return [pad + self.scalar(s)]
        if isinstance(s, Block):
            return [line for child in s.stmts for line in self.of(child, depth)]
        if isinstance(s, Alloc):
            kind = "alloc" if s.buffer.promoted else "memory"
            return [f"{pad}{kind} {declared(s.buffer)}", *self.of(s.body, depth), f"{pad}free {s.buffer.name}"]
        unit = self.unit(s)
        if unit:
            return [pad + unit]
        if isinstance(s, For) and self.near(s.body) and s.step == 1 and s.until is None:
            head = f"{pad}loop {s.var} {bound(s.lo)} {bound(s.hi)}"
            return [head, *self.of(s.body, depth + 1), f"{pad}end"]
        if isinstance(s, If):
            lines = [f"{pad}if {bound(s.cond)}", *self.of(s.then, depth + 1)]
            lines += [] if s.orelse is None else [f"{pad}else", *self.of(s.orelse, depth + 1)]
            return [*lines, f"{pad}end"]
        return [pad + self.scalar(s)]

    def near(self, s: Stmt) -> bool:
        """Whether it holds buffers in the scratchpad, or touches one."""
        inside = any(isinstance(x, Alloc) and x.buffer.promoted for x in walk(s))
        return inside or any(self.buffers[a].promoted for a in arrays_of(s) if a in self.buffers)

    def unit(self, s: Stmt) -> str:
        """The instruction of the DMA or the matrix unit that a nest of loops is; empty: it is none."""
        loops: list[For] = []
        while isinstance(s, For) and s.step == 1 and s.until is None:
            loops.append(s)
            s = s.body if not isinstance(s.body, Block) or len(s.body.stmts) != 1 else s.body.stmts[0]
        if not isinstance(s, Store) or s.mask is not None:
            return ""
        names = [loop.var for loop in loops]
        ranges = ", ".join(f"{loop.var} in {expr_text(loop.lo)} .. {expr_text(loop.hi)}" for loop in loops)
        if any(v in names for loop in loops for e in (loop.lo, loop.hi) for v in variables(e)):
            return ""
        target = Load(s.array, s.index, self.buffers[s.array].dtype)
        if isinstance(s.value, Load) and s.reduction is None:
            one_near = self.buffers[s.array].promoted or self.buffers[s.value.array].promoted
            fits = one_near and all(straight(x, names) for x in (target, s.value))
            return f"dma {ranges}: {expr_text(target)} = {expr_text(s.value)}" if fits and names else ""
        factors = added_product(s.value, target)
        if factors is None or not 1 <= len(names) <= 3 or not self.multiplied((target, *factors), names):
            return ""
        return f"mma {ranges}: {expr_text(target)} += {expr_text(factors[0])} * {expr_text(factors[1])}"

    def multiplied(self, accesses: tuple[Load, Load, Load], names: list[str]) -> bool:
        """Whether the matrix unit takes these tiles: rows are of the result and the left factor, columns of the result
        and the right one, the rest of both factors. A loop of one iteration has left no name."""
        along = [{v for index in x.index for v in variables(index) if v in names} for x in accesses]
        if any(sum(v in each for each in along) != 2 for v in names):
            return False
        for x in accesses:
            buffer = self.buffers[x.array]
            if not buffer.promoted or buffer.dtype.name != "f32" or not straight(x, names):
                return False
            cut = [n for n, index in zip(sizes(buffer), x.index, strict=True) if variables(index) & set(names)]
            if max(cut, default=0) > self.machine.unit:
                return False
        return True

    def scalar(self, s: Stmt) -> str:
        """The loops as a function of their own, for the scalar unit."""
        used = dict.fromkeys(arrays_of(s))
        inside = {x.buffer.name for x in walk(s) if isinstance(x, Alloc)}
        outside = [b for n, b in self.buffers.items() if n in used and n not in inside]
        given = tuple(replace(b, space="param", promoted="") for b in outside)
        free = sorted({v for x in walk(s) for e in stmt_exprs(x) for v in variables(e)} - binders(s))
        self.pieces.append(Function(f"piece{len(self.pieces)}", given, tuple(free), s, self.fn.fma, self.fn.fast_math))
        return f"scalar {len(self.pieces) - 1}"


def declared(b: Buffer) -> str:
    """`A f32 40 20`."""
    return " ".join([b.name, b.dtype.name, *map(str, sizes(b))])


def sizes(b: Buffer) -> list[int]:
    """The shape, in numbers. Raises `BuildError`."""
    found = [linear(e) for e in b.shape]
    if any(not f.is_const for f in found):
        raise BuildError(f"the size of '{b.name}' is no number: the toy accelerator is for sizes that are")
    return [f.const for f in found]


def bound(e: Expr) -> str:
    """A bound or a condition that the machine can evaluate. Raises `BuildError`: it depends on data."""
    text = expr_text(e)
    Expression(text)
    return text


def variables(e: Expr) -> set[str]:
    """The variables of an expression."""
    return {x.name for x in parts(e) if isinstance(x, Var)}


def arrays_of(s: Stmt) -> list[str]:
    """The arrays that a statement and those inside it touch."""
    written = [x.array for x in walk(s) if isinstance(x, Store)]
    return written + [e.array for x in walk(s) for top in stmt_exprs(x) for e in parts(top) if isinstance(e, Load)]


def straight(x: Load, names: list[str]) -> bool:
    """Whether each dimension goes along one of these loops at most, with a constant step, and no loop along two."""
    found: list[str] = []
    for index in x.index:
        inside = variables(index) & set(names)
        bent = [atom for atom, _ in linear(index).terms if not isinstance(atom, Var) and variables(atom) & inside]
        if bent or len(inside) > 1:
            return False
        found += inside
    return len(set(found)) == len(found)


def added_product(value: Expr, target: Load) -> tuple[Load, Load] | None:
    """The factors of `target + a * b`, however it is written."""
    if isinstance(value, Call) and value.fn == "fma" and value.args[2] == target:
        factors = value.args[:2]
    elif isinstance(value, Binary) and value.op == "+" and value.a == target and isinstance(value.b, Binary):
        factors = (value.b.a, value.b.b) if value.b.op == "*" else ()
    else:
        return None
    both = tuple(f for f in factors if isinstance(f, Load))
    return (both[0], both[1]) if len(both) == 2 else None
