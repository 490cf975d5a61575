"""Hand-written GPU functions in the loop IR."""

from __future__ import annotations

from dataclasses import replace

from polyc.emit.loop_ir.loops import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    For,
    Function,
    If,
    Launch,
    Ramp,
    Stmt,
    Store,
    VLoad,
    walk,
)
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.poly.dtypes import bool_, f32, i64
from polyc.poly.expr import Binary, Call, Const, Expr, Load, Select, Var, compare, const_int

M, N, K = Var("M"), Var("N"), Var("K")


def num(op: str, a: Expr | int, b: Expr | int) -> Binary:
    """Index arithmetic."""
    left, right = (const_int(x) if isinstance(x, int) else x for x in (a, b))
    return Binary(op, left, right, i64)


def both(a: Expr, b: Expr) -> Expr:
    return Binary("and", a, b, bool_)


def array(name: str, *shape: Expr, writable: bool = False) -> Buffer:
    return Buffer(name, f32, shape, "param", writable)


def tiled_matmul(t: int = 16, deep: int = 1) -> Function:
    """C = A B with t x t blocks through shared memory; panels are `deep` times too tall on purpose."""
    bx, by, tx, ty = (Var(n) for n in ("bx", "by", "tx", "ty"))
    row, col, k0, kk = num("+", num("*", by, t), ty), num("+", num("*", bx, t), tx), Var("k0"), Var("kk")

    def read(name: str, i: Expr, j: Expr, rows: Expr, columns: Expr) -> Expr:
        inside = both(compare("<", i, rows), compare("<", j, columns))
        return Select(inside, Load(name, (i, j), f32), Const(0.0, f32), f32)

    acc = Load("acc", (const_int(0),), f32)
    fma = Call("fma", (Load("As", (ty, kk), f32), Load("Bs", (kk, tx), f32), acc), f32)
    panels = For("k0", const_int(0), K, t, Block((
        Store("As", (ty, tx), read("A", row, num("+", k0, tx), M, K)),
        Store("Bs", (ty, tx), read("B", num("+", k0, ty), col, K, N)),
        Barrier(),
        For("kk", const_int(0), const_int(t), 1, Store("acc", (const_int(0),), fma)),
        Barrier(),
    )))  # fmt: skip
    inner = Block((
        Store("acc", (const_int(0),), Const(0.0, f32)),
        panels,
        If(both(compare("<", row, M), compare("<", col, N)), Store("C", (row, col), acc)),
    ))  # fmt: skip
    body: Stmt = Alloc(Buffer("acc", f32, (const_int(1),), "register"), inner)
    for name in ("Bs", "As"):
        body = Alloc(Buffer(name, f32, (const_int(t * deep), const_int(t + 1)), "shared"), body)
    grid = (("bx", num("//", num("+", N, t - 1), t)), ("by", num("//", num("+", M, t - 1), t)))
    launch = Launch("matmul_0", grid, (("tx", t), ("ty", t)), body)
    buffers = (array("A", M, K), array("B", K, N), array("C", M, N, writable=True))
    return Function("matmul", buffers, ("M", "N", "K"), launch)


def scaled(lanes: int = 4, threads: int = 32) -> Function:
    """Y = X + X in wide accesses; N is a multiple of lanes * threads."""
    at = num("*", num("+", num("*", Var("bx"), threads), Var("tx")), lanes)
    x = VLoad("X", (Ramp(at, 1, lanes, i64),), None, lanes, f32)
    store = Store("Y", (Ramp(at, 1, lanes, i64),), Binary("+", x, x, f32))
    grid = (("bx", num("//", N, lanes * threads)),)
    launch = Launch("scaled_0", grid, (("tx", threads),), store)
    return Function("scaled", (array("X", N), array("Y", N, writable=True)), ("N",), launch)


def without_barrier(fn: Function, number: int) -> Function:
    """The function with one of its barriers (counted from 0) removed."""
    seen = -1

    def visit(s: Stmt) -> Stmt:
        nonlocal seen
        if isinstance(s, Barrier):
            seen += 1
            return Block(()) if seen == number else s
        return with_bodies(s, tuple(visit(b) for b in s.bodies())) if s.bodies() else s

    return replace(fn, body=visit(fn.body))


def with_index(fn: Function, name: str, old: Expr, new: Expr) -> Function:
    """The function with one subscript of the stores to `name` replaced."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.array == name:
            return replace(s, index=tuple(new if e == old else e for e in s.index))
        return with_bodies(s, tuple(visit(b) for b in s.bodies())) if s.bodies() else s

    assert any(isinstance(s, Store) and s.array == name and old in s.index for s in walk(fn.body))
    return replace(fn, body=visit(fn.body))
