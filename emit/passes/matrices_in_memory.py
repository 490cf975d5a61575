"""Matrix registers as arrays and loops, for languages that have no word for them."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    MatrixClear,
    MatrixMove,
    MatrixProduct,
    MatrixShapes,
    MatrixStatement,
    Stmt,
    Store,
    walk,
)
from polyc.emit.loop_ir.rewrite import Names, binders, over_bodies, unique_names
from polyc.poly.dtypes import DType, f32, i32, i64
from polyc.poly.expr import Binary, Call, Const, Expr, Load, Var, const_int
from polyc.poly.records import replace
from polyc.poly.target import MATRIX_PRODUCTS

EMPTY = Block(())


def matrices_in_memory(fn: Function) -> Function:
    """The same function without matrix registers (the very same if it has none)."""
    if not any(isinstance(s, MatrixStatement) for s in walk(fn.body)):
        return fn
    names = Names({*fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))
    buffers = {b.name: b for b in fn.buffers} | {s.buffer.name: s.buffer for s in walk(fn.body) if isinstance(s, Alloc)}
    return unique_names(replace(fn, body=_Arrays(names, buffers).visit(fn.body)))


class _Arrays:
    def __init__(self, names: Names, buffers: dict[str, Buffer]) -> None:
        self.fresh, self.buffers = names.fresh, buffers
        self.registers: list[Buffer] = []

    def visit(self, s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return self.block(s.stmts)
        if isinstance(s, MatrixShapes):
            return self.block((s,))
        if isinstance(s, MatrixClear):
            return self.cleared(self.registers[s.register])
        if isinstance(s, MatrixMove):
            return self.moved(s)
        if isinstance(s, MatrixProduct):
            return self.product(s)
        return over_bodies(s, self.visit)

    def block(self, stmts: Sequence[Stmt]) -> Stmt:
        """Statements in order; registers are arrays around all that comes after their shapes."""
        done: list[Stmt] = []
        for k, s in enumerate(stmts):
            if isinstance(s, MatrixShapes) and s.shapes:
                outer, self.registers = self.registers, [self.array(*shape) for shape in s.shapes]
                used = [b for b in self.registers if b.shape[0] != const_int(0)]
                inner: Stmt = Block((*map(self.cleared, used), self.block(stmts[k + 1 :])))
                for b in reversed(used):
                    inner = Alloc(b, inner)
                self.registers = outer
                return Block((*done, inner))
            done.append(EMPTY if isinstance(s, MatrixShapes) else self.visit(s))
        return Block(tuple(done))

    def array(self, rows: int, words: int) -> Buffer:
        return Buffer(self.fresh("matrix"), i32, (const_int(rows), const_int(words)), "local")

    def loops(self, sizes: Sequence[Expr], variables: Sequence[Var], body: Stmt) -> Stmt:
        for size, variable in reversed([*zip(sizes, variables, strict=True)]):
            body = For(variable.name, const_int(0), size, 1, body)
        return body

    def variables(self, names: str) -> list[Var]:
        return [Var(self.fresh(name)) for name in names]

    def cleared(self, b: Buffer) -> Stmt:
        at = self.variables("ij")
        return self.loops(b.shape, at, Store(b.name, tuple(at), Const(0, i32)))

    def moved(self, s: MatrixMove) -> Stmt:
        register, buffer = self.registers[s.register], self.buffers[s.array]
        i, j = self.variables("ij")
        index = [
            _plus(e, Binary("*", i, const_int(d), i64) if d else None) for e, d in zip(s.index, s.step, strict=True)
        ]
        there, here = (*index[:-1], _plus(index[-1], j)), (i, j)
        if s.store:
            body = Store(s.array, there, _as(Load(register.name, here, i32), buffer.dtype))
        else:
            body = Store(register.name, here, _as(Load(s.array, there, buffer.dtype), i32))
        return self.loops(register.shape, (i, j), body)

    def product(self, s: MatrixProduct) -> Stmt:
        acc, left, right = (self.registers[k] for k in (s.acc, s.left, s.right))
        kind = i32 if MATRIX_PRODUCTS[s.intrinsic] == "amx-int8" else f32
        i, k, j = self.variables("ikj")
        a, b, c = (_as(Load(m.name, at, i32), kind) for m, at in ((left, (i, k)), (right, (k, j)), (acc, (i, j))))
        value = Call(f"{s.intrinsic}_add", (b, a, c) if s.swapped else (a, b, c), kind)
        body = Store(acc.name, (i, j), _as(value, i32))
        return self.loops((acc.shape[0], left.shape[1], acc.shape[1]), (i, k, j), body)


def _plus(a: Expr, b: Expr | None) -> Expr:
    return a if b is None else Binary("+", a, b, i64)


def _as(e: Expr, dtype: DType) -> Expr:
    return e if e.dtype == dtype else Call("bitcast", (e,), dtype)
