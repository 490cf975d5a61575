"""Statements in the letter of C99, with or without the vector types of GCC and clang.

With vectors the text uses `__attribute__` and `__builtin_` names only, which `-std=c99 -pedantic` accepts, and
stands under `#ifdef __GNUC__`. Wrapping of signed integers is written out, so no option of a compiler is needed.
Parallel loops are OpenMP's, under `#ifdef _OPENMP`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cgen import Block, Comment, For, If, Line, Statement

from polyc.emit.c.c99 import KEEP, StandardPrinter, short_and_innermost
from polyc.emit.c.expr import Helpers
from polyc.emit.c.plain import PLAIN
from polyc.emit.c.source import StatementPrinter
from polyc.emit.loop_ir import loops
from polyc.emit.loop_ir.loops import Buffer, Function
from polyc.emit.passes.simplify import decided_by_type, simplify_expr
from polyc.poly.dtypes import BY_NAME, DType, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import COMPARISONS, Binary, Cast, Const, Expr, Load, Select, Unary, Var, walk

STACK_BYTES = 65536  # a larger array inside a parallel loop comes from the heap
FAILED = "polyc_failed"  # set where there is no memory inside of a parallel loop


class StandardHelpers(Helpers):
    """Types whose elements C99 has: f16 is its bits, too."""

    def vector(self, dtype: DType, lanes: int) -> str:
        return super().vector(dtype, lanes) if lanes > 1 else PLAIN[dtype.name]

    def element(self, dtype: DType) -> str:
        return PLAIN[dtype.name]

    def typedefs(self) -> list[str]:
        """Vector types, aligned and `_u` (unaligned, for memory), sorted."""
        lines = []
        for dtype, lanes in sorted(self.vectors, key=lambda v: (v[0].name, v[1])):
            element = "int8_t" if dtype.kind == "bool" else PLAIN[dtype.name]
            name, size = f"v{lanes}_{dtype.name}", lanes * dtype.bytes
            lines.append(f"typedef {element} {name} __attribute__((vector_size({size})));")
            lines.append(
                f"typedef {element} {name}_u __attribute__((vector_size({size}), aligned({dtype.bytes}), may_alias));"
            )
        return lines


class VectorPrinter(StandardPrinter):
    """Expressions with vectors and wrapping integers, and 64-bit numbers without the suffix of one machine.

    `counters` are names of loop counters and sizes: what is made of them alone never overflows.
    """

    def __init__(self, buffers: Mapping[str, Buffer], helpers: Helpers, counters: Iterable[str] = ()) -> None:
        super().__init__(buffers, helpers)
        self.counters = set(counters)

    def expr(self, e: Expr) -> str:
        if isinstance(e, Const) and e.dtype.name in ("i64", "u64"):
            return self._wide_number(int(e.value), e.dtype.name)
        if isinstance(e, Binary) and e.lanes == 1 and e.a.dtype.name == "i64":
            if e.op in COMPARISONS and decided_by_type(e) is not e:
                return super().expr(e)
            if e.op in COMPARISONS or (e.op in ("+", "-", "*") and (not self.wrapping or self.is_counter(e))):
                return f"({self._operand(e.a, e.b)} {e.op} {self._operand(e.b, e.a)})"
            if e.op in ("min", "max", "//", "%"):
                return self._helper(e.op, e.a.dtype, [self._argument(e.a), self._argument(e.b)])
        if e.lanes > 1 and isinstance(e, Binary) and e.op in ("+", "-", "*") and e.dtype.kind == "int":
            if self.wrapping or e.dtype.bits < 64:
                t, u = self._types(e)
                return f"(({t})(({u}){self.expr(e.a)} {e.op} ({u}){self.expr(e.b)}))"
            return f"({self.expr(e.a)} {e.op} {self.expr(e.b)})"
        if e.lanes > 1 and isinstance(e, Unary) and e.op == "neg" and e.dtype.kind == "int":
            t, u = self._types(e)
            return f"(({t})(-({u}){self.expr(e.a)}))"
        if e.lanes > 1 and isinstance(e, (Binary, Unary)) and e.dtype.kind == "uint":
            return self._binary(e) if isinstance(e, Binary) else self._unary(e)
        return super().expr(e)

    def address(self, array: str, index: tuple[Expr, ...]) -> str:
        if not index or any(e.lanes > 1 for e in index):
            return super().address(array, index)
        number: Expr = Const(0, i64)
        for size, e in zip(self.buffers[array].shape, index, strict=True):
            number = Binary("+", Binary("*", number, size, i64), e if e.dtype == i64 else Cast(e, i64), i64)
        return self.index(simplify_expr(number))

    def index(self, e: Expr) -> str:
        return without_parentheses(super().index(e)) if not isinstance(e, Const) else str(int(e.value))

    def compared(self, e: Expr) -> str:
        """An index on one side of a comparison: only what binds tighter goes without parentheses."""
        loose = isinstance(e, Select) or (isinstance(e, Binary) and e.op not in ("+", "-", "*", "min", "max"))
        return super().index(e) if loose else self.index(e)

    def condition(self, e: Expr) -> str:
        """The condition of an `if`, which brings its own parentheses."""
        return without_parentheses(self.expr(e))

    def is_counter(self, e: Expr) -> bool:
        """Whether an expression has loop counters, sizes and numbers only."""
        return all(
            isinstance(x, (Const, Binary)) or (isinstance(x, Var) and x.name in self.counters) for x in walk(e)
        )  # fmt: skip

    def _argument(self, e: Expr) -> str:
        """An argument of a function: its parameter has the type."""
        return without_parentheses(self.expr(e)) if not isinstance(e, Const) else self._operand(e, Var(""))

    def _types(self, e: Expr) -> tuple[str, str]:
        """The vector type of a signed expression and the unsigned one as wide."""
        return self.helpers.vector(e.dtype, e.lanes), self.helpers.vector(BY_NAME[f"u{e.dtype.bits}"], e.lanes)

    def _operand(self, e: Expr, other: Expr) -> str:
        """A 64-bit operand; numbers need no type beside an operand that has it."""
        if isinstance(e, Const) and abs(int(e.value)) < 2**31 and isinstance(other, (Var, Load, Binary)):
            return str(int(e.value)) if e.value >= 0 else f"({int(e.value)})"
        return self.expr(e)

    def _wide_number(self, value: int, name: str) -> str:
        if value == -(2**63):
            return "INT64_MIN"
        text = f"{'U' if name == 'u64' else ''}INT64_C({abs(value)})"
        return f"(-{text})" if value < 0 else text


def without_parentheses(text: str) -> str:
    """`text` without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for k, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and k < len(text) - 1:
            return text
    return text[1:-1]


class StandardBody(StatementPrinter):
    """Prints the loops of one function. `vectors`: for GCC and clang; `threads`: parallel loops are OpenMP's."""

    printer: VectorPrinter

    def __init__(self, fn: Function, helpers: StandardHelpers, vectors: bool, threads: int) -> None:
        buffers = {b.name: b for b in fn.buffers}
        super().__init__(buffers, VectorPrinter(buffers, helpers, fn.params))
        self.fn, self.helpers, self.vectors, self.threads = fn, helpers, vectors, threads
        self.fails = False  # whether a parallel loop takes memory

    def lines(self) -> list[str]:
        """The statements of the function, without declarations."""
        nodes = self.block(self.fn.body)
        texts = [self.traced(line)[0] for node in nodes for line in node.generate()]  # type: ignore[attr-defined]
        return [line for line in texts if line.strip() != ";"]

    def nodes(self, stmt: loops.Stmt) -> list[object]:
        if isinstance(stmt, loops.If):
            orelse = None if stmt.orelse is None else Block(self.block(stmt.orelse))
            return [If(self.printer.condition(stmt.cond), Block(self.block(stmt.then)), orelse)]
        if isinstance(stmt, loops.Let) and self.printer.is_counter(stmt.value):
            self.printer.counters.add(stmt.name)
        return super().nodes(stmt)

    def value_type(self, e: Expr) -> str:
        return self.helpers.vector(e.dtype, e.lanes)

    def loop(self, stmt: loops.For) -> list[object]:
        self.printer.counters.add(stmt.var)
        until = "" if stmt.until is None else f" && !({self.printer.condition(stmt.until)})"
        head = For(
            f"int64_t {stmt.var} = {self.printer.index(stmt.lo)}",
            f"{stmt.var} < {self.printer.compared(stmt.hi)}{until}",
            f"{stmt.var} += {stmt.step}",
            Block(self.block(stmt.body)),
        )
        before: list[object] = []
        if stmt.loop and stmt.loop != stmt.var and re.fullmatch(r"[\w.]+", stmt.loop):
            before.append(Comment(f"loop {stmt.loop}"))
        if stmt.kind == "parallel" and self.threads > 1:
            pragma = f"#pragma omp parallel for schedule(static) num_threads({self.threads})"
            before += [Line("#ifdef _OPENMP"), Line(pragma), Line("#endif")]
        elif not self.vectors and short_and_innermost(stmt):
            before.append(Line(KEEP))
        return [*before, head]

    def allocated(self, stmt: loops.Alloc) -> list[object]:
        b = stmt.buffer
        self.buffers[b.name] = b
        t, size = PLAIN[b.dtype.name], _constant(b)
        if size is not None and (b.space == "register" or size * b.dtype.bytes <= STACK_BYTES):
            aligned = f" __attribute__((aligned({b.align})))" if self.vectors else ""
            return [Line(f"{t} {b.name}[{max(size, 1)}]{aligned};"), *self.block(stmt.body)]
        # Extents may be negative where nothing runs (`K - 2` at K = 1).
        self.fails = True
        count = " * ".join(f"({self.printer.index(e)})" for e in b.shape) or "1"
        raw = f"{b.name}_memory"
        return [
            Line(f"void *{raw} = malloc((size_t)(({count}) > 0 ? ({count}) : 1) * sizeof({t}) + {b.align});"),
            If(
                raw,
                Block(
                    [
                        Line(
                            f"{t} *restrict {b.name} = "
                            f"({t} *)(((uintptr_t){raw} + {b.align - 1}) & ~(uintptr_t){b.align - 1});"
                        ),
                        *self.block(stmt.body),
                        Statement(f"free({raw})"),
                    ]
                ),
                Block([Statement(f"{FAILED} = 1")]),
            ),
        ]


def _constant(b: Buffer) -> int | None:
    size = 1
    for e in b.shape:
        while isinstance(e, Cast):
            e = e.a
        if not isinstance(e, Const):
            return None
        size *= max(0, int(e.value))
    return size


def check_serial(fn: Function) -> None:
    """Raise `BuildError` where a loop is still to be expanded."""
    for s in loops.walk(fn.body):
        if isinstance(s, loops.For) and s.kind not in ("serial", "parallel"):
            raise BuildError(f"loop '{s.loop or s.var}' is still marked {s.kind}: run the passes first")
