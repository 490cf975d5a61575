"""Names of a kernel that a language has taken (`kernel`, `half`, `short`, ...) get a `_` appended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyc.emit.loop_ir.loops import (
    Alloc,
    Buffer,
    For,
    If,
    Launch,
    Let,
    PanelProduct,
    Stmt,
    Store,
    VLoad,
    WarpReduce,
    walk,
)
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.poly.expr import Expr, Load, Var, rewrite
from polyc.poly.expr import walk as walk_expr

RESERVED = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    asm bool catch class constexpr delete explicit export false friend mutable namespace new nullptr operator
    private protected public template this throw true try typeid typename typeof using virtual wchar_t
    kernel global local constant generic pipe half uchar ushort uint ulong size_t ptrdiff_t image1d_t image2d_t
    image3d_t sampler_t event_t queue_t quad complex imaginary read_only write_only read_write uniform
    threadIdx blockIdx blockDim gridDim warpSize dim3 linux unix NAN INFINITY NULL polyc_dynamic
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t""".split()
)


def used_names(stmt: Stmt) -> tuple[set[str], set[str]]:
    """Variables and arrays that occur in `stmt`, bound there or not."""
    variables: set[str] = set()
    arrays: set[str] = set()
    for s in walk(stmt):
        if isinstance(s, Store | WarpReduce):
            arrays.add(s.array)
        elif isinstance(s, PanelProduct):
            arrays |= {s.acc, s.left, s.right}
        for top in stmt_exprs(s):
            for e in walk_expr(top):
                if isinstance(e, Var):
                    variables.add(e.name)
                elif isinstance(e, Load | VLoad):
                    arrays.add(e.array)
    return variables, arrays


def loaded_names(stmt: Stmt) -> set[str]:
    """Arrays of which elements are loaded in `stmt`."""
    tops = (e for s in walk(stmt) for top in stmt_exprs(s) for e in walk_expr(top))
    return {e.array for e in tops if isinstance(e, Load | VLoad)}


def renamed(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    """Replace names, where they are bound and where they are used."""

    def one(e: Expr) -> Expr:
        if isinstance(e, Var | Load | VLoad):
            old = e.name if isinstance(e, Var) else e.array
            if old in names:
                return replace(e, name=names[old]) if isinstance(e, Var) else replace(e, array=names[old])
        return e

    def fix(e: Expr) -> Expr:
        return rewrite(e, one)

    def new(name: str) -> str:
        return names.get(name, name)

    stmt = with_bodies(stmt, tuple(renamed(b, names) for b in stmt.bodies()))
    if isinstance(stmt, For):
        until = None if stmt.until is None else fix(stmt.until)
        return replace(stmt, var=new(stmt.var), lo=fix(stmt.lo), hi=fix(stmt.hi), until=until)
    if isinstance(stmt, Let):
        return replace(stmt, name=new(stmt.name), value=fix(stmt.value))
    if isinstance(stmt, Alloc):
        return replace(stmt, buffer=renamed_buffer(stmt.buffer, names))
    if isinstance(stmt, Launch):
        grid = tuple((new(v), fix(n)) for v, n in stmt.grid)
        return replace(stmt, grid=grid, threads=tuple((new(v), n) for v, n in stmt.threads))
    if isinstance(stmt, Store):
        mask = None if stmt.mask is None else fix(stmt.mask)
        return replace(stmt, array=new(stmt.array), index=tuple(map(fix, stmt.index)), value=fix(stmt.value), mask=mask)
    if isinstance(stmt, If):
        return replace(stmt, cond=fix(stmt.cond))
    if isinstance(stmt, PanelProduct):
        left, right = tuple(map(fix, stmt.left_index)), tuple(map(fix, stmt.right_index))
        acc, a, b = (new(n) for n in (stmt.acc, stmt.left, stmt.right))
        return replace(stmt, acc=acc, left=a, left_index=left, right=b, right_index=right)
    if isinstance(stmt, WarpReduce):
        return replace(stmt, array=new(stmt.array), index=tuple(map(fix, stmt.index)))
    return stmt


def renamed_buffer(buffer: Buffer, names: Mapping[str, str]) -> Buffer:
    """The buffer under its new name, its shape in new names."""

    def one(e: Expr) -> Expr:
        return replace(e, name=names[e.name]) if isinstance(e, Var) and e.name in names else e

    return replace(buffer, name=names.get(buffer.name, buffer.name), shape=tuple(rewrite(e, one) for e in buffer.shape))
