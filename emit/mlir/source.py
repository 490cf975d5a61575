"""Finished loops as the text of an MLIR module.

    func.func @NAME(%A: memref<?x?xf32>, ..., %M: index, ...)

Arguments are the buffers of the function in order, then its sizes; no two arrays of one call may overlap unless both
are only read. Loops with affine bounds are `affine.for`, parallel ones `affine.parallel`, others `scf.for`, loops that
data end `scf.while`; conditions and subscripts likewise are affine where MLIR's rules let them be. Dialects and their
rules: the MLIR Language Reference and the pages of the dialects at mlir.llvm.org.

What has no operations here is a `BuildError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, If, Let, Prefetch, Stmt, Store
from polyc.emit.mathlib import expand_function
from polyc.emit.mlir.affine import affine, affine_map, affine_set, parts
from polyc.emit.mlir.code import FunctionText
from polyc.emit.mlir.expr import Expressions, Memory, memref_type
from polyc.emit.mlir.types import Value
from polyc.emit.passes.matrices_in_memory import matrices_in_memory
from polyc.poly.dtypes import bool_
from polyc.poly.errors import BuildError
from polyc.poly.expr import Const, Expr

STACK_BYTES = 16384  # larger or symbolic buffers come from the heap, unless they are registers
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")


def to_mlir(fn: Function) -> str:
    """The module of one kernel (no `vector`/`unroll` loops left; intrinsics are written out here).

    Raises:
        BuildError: the loop IR holds something that MLIR's dialects have no operations for.
    """
    return module([("", fn)])


def module(functions: Sequence[tuple[str, Function]]) -> str:
    """A module of several kernels, whose names differ, each with a comment of one line ("": none). Raises `BuildError`
    as `to_mlir` does."""
    texts = [
        f"{f'  // {comment}{chr(10)}' if comment else ''}{_Writer(_plain(fn)).function()}" for comment, fn in functions
    ]
    return "\n".join(["module {", *texts, "}"]) + "\n"


def _plain(fn: Function) -> Function:
    """Without intrinsics and matrix registers, for which the dialects have no words."""
    return expand_function(matrices_in_memory(fn))


def symbol(name: str) -> str:
    """A function's name as MLIR writes it, in quotes where it must."""
    return f"@{name}" if _NAME.fullmatch(name) else f'@"{name}"'


class _Writer:
    """Writes one function."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.f = FunctionText()
        self.x = Expressions(self.f, fn.fast_math)
        self.parallel = False  # inside of a parallel loop

    def function(self) -> str:
        """The text of the function."""
        arguments = []
        for b in self.fn.buffers:
            m = Memory(b, self.f.fresh(b.name), memref_type(b))
            self.x.memory[b.name] = m
            arguments.append(f"{m.ref}: {m.type}")
        for p in self.fn.params:
            self.x.size(p, self.f.fresh(p))
            arguments.append(f"{self.x.indices[p]}: index")
        self.stmt(self.fn.body)
        return self.f.finish(
            f"func.func {symbol(self.fn.name)}({', '.join(arguments)}) attributes {{llvm.emit_c_interface}}"
        )

    def stmt(self, s: Stmt) -> None:
        """One statement."""
        if isinstance(s, Block):
            for inner in s.stmts:
                self.stmt(inner)
        elif isinstance(s, Store):
            value = self.x.expr(s.value)
            mask = None if s.mask is None else self.x.expr(s.mask)
            self.x.store(s.array, s.index, value, mask)
            if mask is None:
                self.x.ranges.learn(s.array, s.index)
        elif isinstance(s, For):
            self._for(s)
        elif isinstance(s, Let):
            self.x.bind(s.name, s.value)
            self.stmt(s.body)
            self.x.unbind(s.name)
        elif isinstance(s, If):
            self._if(s)
        elif isinstance(s, Alloc):
            self._alloc(s)
        elif isinstance(s, Prefetch):
            self.x.prefetch(s.array, s.index)
        else:
            raise BuildError(f"MLIR has no form for the loop-IR statement {type(s).__name__}")

    # ---- conditions ----

    def _if(self, s: If) -> None:
        found = affine_set(s.cond, self.x.dimension, self.x.values)
        head = f"affine.if {found}" if found else f"scf.if {self.x.expr(s.cond).ref}"
        for text, body in ((f"{head} {{", s.then), ("} else {", s.orelse)):
            if body is not None:
                self.f.do(text)
                self._body(body)
        self.f.do("}")

    def _body(self, body: Stmt) -> None:
        self.f.depth += 1
        with self.x.ranges.scope():
            self.stmt(body)
        self.f.depth -= 1

    # ---- loops ----

    def _for(self, s: For) -> None:
        if s.kind not in ("serial", "parallel"):
            raise BuildError(f"the '{s.kind}' loop {s.var} must be expanded before MLIR is printed")
        if s.until is not None:
            self._while(s, s.until)
            return
        affine_head = self._parallel_head(s) if s.kind == "parallel" else self._affine_head(s)
        var = self.f.fresh(s.var)
        if affine_head:
            head = affine_head.format(var)
        else:
            step = self.f.constant(str(s.step), "index")
            word, low, high = "for", self.x.index(s.lo), self.x.index(s.hi)
            if s.kind == "parallel":
                word, var_, low, high, step = "parallel", f"({var})", f"({low})", f"({high})", f"({step})"
            else:
                var_ = var
            head = f"scf.{word} {var_} = {low} to {high} step {step} {{"
        self.x.indices[s.var] = var
        if affine_head:
            self.x.dims[s.var] = var
        with self.f.region(head), self.x.ranges.loop(s):
            if s.kind == "parallel":
                outer, self.parallel = self.parallel, True
                with self.f.scope():
                    self.stmt(s.body)
                self.parallel = outer
            else:
                self.stmt(s.body)
        self.x.unbind(s.var)

    def _affine_head(self, s: For) -> str | None:
        """`affine.for` up to its body, the variable as `{}`; None: a bound is not affine."""
        low, high = self._bound(s.lo, "max"), self._bound(s.hi, "min")
        if low is None or high is None:
            return None
        return f"affine.for {{}} = {low} to {high}{f' step {s.step}' if s.step != 1 else ''} {{{{"

    def _bound(self, e: Expr, op: str) -> str | None:
        """A bound: a number, or the largest (smallest) result of a map."""
        if isinstance(e, Const):
            return str(int(e.value))
        choices = parts(e, op, self.x.values)
        found = affine_map(choices, self.x.dimension)
        return None if found is None else f"{f'{op} ' if len(choices) > 1 else ''}{found}"

    def _parallel_head(self, s: For) -> str | None:
        """`affine.parallel` up to its body, the variable as `{}`; None: a bound is not affine."""
        bounds = []
        for e, op in ((s.lo, "max"), (s.hi, "min")):
            choices = [affine(p, self.x.dimension) for p in parts(e, op, self.x.values)]
            if any(p is None for p in choices):
                return None
            text = ", ".join(map(str, choices))
            bounds.append(f"{op}({text})" if len(choices) > 1 else text)
        step = f" step ({s.step})" if s.step != 1 else ""
        return f"affine.parallel ({{}}) = ({bounds[0]}) to ({bounds[1]}){step} {{{{"

    def _while(self, s: For, until: Expr) -> None:
        """A loop that data may end: before each iteration the end is asked for only if there is an iteration."""
        f, low, high = self.f, self.x.index(s.lo), self.x.index(s.hi)
        step = f.constant(str(s.step), "index")
        before, var = f.fresh(s.var), f.fresh(s.var)
        f.do(f"{f.fresh('end')} = scf.while ({before} = {low}) : (index) -> index {{")
        f.depth += 1
        more = Value(f.emit(f"arith.cmpi slt, {before}, {high} : index"), bool_)
        self.x.indices[s.var] = before
        go = self.x.either(
            more, more, lambda: self.x.arith.unary("not", self.x.expr(until)), lambda: self.x.arith.scalar(False, bool_)
        )
        f.do(f"scf.condition({go.ref}) {before} : index")
        f.depth -= 1
        f.do("} do {")
        f.do(f"^bb0({var}: index):")
        f.depth += 1
        self.x.indices[s.var] = var
        with self.x.ranges.loop(s):
            self.stmt(s.body)
        f.do(f"scf.yield {f.emit(f'arith.addi {var}, {step} : index')} : index")
        f.depth -= 1
        f.do("}")
        self.x.unbind(s.var)

    # ---- memory ----

    def _alloc(self, s: Alloc) -> None:
        b, type_ = s.buffer, memref_type(s.buffer)
        if on_stack(b, self.parallel):
            self.x.memory[b.name] = Memory(b, self.f.alloca(type_, b.name), type_)
            self.stmt(s.body)
        else:
            sizes = ", ".join(self._extent(n) for n in b.shape if not isinstance(n, Const))
            ref = self.f.emit(f"memref.alloc({sizes}) : {type_}", b.name)
            self.x.memory[b.name] = Memory(b, ref, type_)
            self.stmt(s.body)
            self.f.do(f"memref.dealloc {ref} : {type_}")
        del self.x.memory[b.name]

    def _extent(self, n: Expr) -> str:
        """A size, not less than 0: it may be where nothing runs (`K - 2` at K = 1)."""
        return self.f.emit(f"arith.maxsi {self.x.index(n)}, {self.f.constant('0', 'index')} : index", "size")


def on_stack(b: Buffer, parallel: bool) -> bool:
    """Whether a buffer is a `memref.alloca`. In a parallel loop only registers are: each iteration allocates anew, and
    lowerings to serial loops free nothing before the function's end."""
    sizes = [int(n.value) for n in b.shape if isinstance(n, Const)]
    if len(sizes) < len(b.shape):
        return False
    return b.space == "register" or (not parallel and math.prod(sizes) * b.dtype.bytes <= STACK_BYTES)
