"""Tensor cores: loops in which a warp multiplies panels of shared memory become one instruction.

The loops over a thread's results and over 16 elements of the reduction,

    for m, n, h < 2, e < 2, k < 16:
        acc[m, n, h, e] += f32(left[r + 16 m + 8 h, c + k]) * f32(right[c + k, j + 8 n + e])

are `WarpProduct`, when `r` is a multiple of 8 plus the thread's y, `j` a multiple of 8 plus twice its x, and all
threads of the warp come there. The instruction adds the 16 products of an element in an order of its own, with
at least the precision of f32: allowed where reductions may be reordered, as only those are found here.

With elements of f32, without the conversions, the instruction rounds them to tf32: found only where the target's name
allows it (`sm_80+tf32`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.emit.loop_ir.linear import Linear, linear, rebuild, variables
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Launch, Let, Stmt, Store, WarpProduct, walk
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.passes.bounds import full
from polyc.poly.expr import Call, Cast, Const, Expr, Load, Var, const_int
from polyc.poly.target import TF32, WIDEST_ACCESS, GpuTarget, mma_feature

SHAPE = "mma.m16n8k16"
WARP = (4, 8)  # threads of a warp along x and y


def tensor_cores(fn: Function, target: GpuTarget) -> Function:
    """`fn` with the products that the target's tensor cores compute."""
    if SHAPE not in target.features:
        return fn
    return replace(fn, body=_host(fn.body, target))


def _host(s: Stmt, target: GpuTarget) -> Stmt:
    if not isinstance(s, Launch):
        return with_bodies(s, tuple(_host(b, target) for b in s.bodies()))
    if tuple(n for _, n in s.threads)[:2] != WARP or s.block_threads % 32:
        return s
    found = _Finder(s, target)
    body = found.visit(s.body)
    return replace(s, body=_longer_rows(body, found.rows)) if found.rows else s


class _Finder:
    def __init__(self, launch: Launch, target: GpuTarget) -> None:
        self.x, self.y = (v for v, _ in launch.threads[:2])
        self.varying = {v for v, _ in launch.threads}
        self.target = target
        self.buffers = {s.buffer.name: s.buffer for s in walk(launch.body) if isinstance(s, Alloc)}
        self.shared = {name for name, b in self.buffers.items() if b.space == "shared"}
        self.rows: dict[str, int] = {}  # by panel: bytes from the bank of a row to that of the next one

    def visit(self, s: Stmt) -> Stmt:
        if isinstance(s, For) and not variables(s.lo) | variables(s.hi):
            nest = [*_nest(s)]
            product = self.product(nest) if len(nest) == 6 else None
            if product is not None:
                return product
        if isinstance(s, If) and variables(s.cond) & self.varying:
            return s  # not all threads of a warp may come here
        if isinstance(s, Let) and variables(s.value) & self.varying:
            self.varying = self.varying | {s.name}
        return with_bodies(s, tuple(self.visit(b) for b in s.bodies()))

    def product(self, nest: list[Stmt]) -> WarpProduct | None:
        *loops, s = nest
        if not isinstance(s, Store) or s.reduction != "+" or s.mask is not None:
            return None
        trips = [_trip(x) for x in loops if isinstance(x, For)]
        m, n, h, e, k = (Var(x.var) for x in loops if isinstance(x, For))
        value = s.value
        if trips[2:] != [2, 2, 16] or s.index != (m, n, h, e) or not isinstance(value, Call) or value.fn != "fma":
            return None
        a, b, c = value.args
        if c != Load(s.array, s.index, s.value.dtype) or self.buffers[s.array].space != "register":
            return None
        left, right = self.operand(a), self.operand(b)
        if left is None or right is None or left.dtype != right.dtype:
            return None
        for first, second in ((left, right), (right, left)):
            rows = self.corner(first, {-2: ((m, 16), (h, 8), (Var(self.y), 1)), -1: ((k, 1),)})
            columns = self.corner(second, {-2: ((k, 1),), -1: ((n, 8), (e, 1), (Var(self.x), 2))})
            if rows is not None and columns is not None:
                self.rows[first.array] = WIDEST_ACCESS
                self.rows[second.array] = WIDEST_ACCESS if second.dtype.bits == 16 else 2 * WIDEST_ACCESS
                assert trips[0] is not None and trips[1] is not None
                return WarpProduct(
                    s.array, first.array, rows, second.array, columns, (trips[0], trips[1]), first.dtype,
                    s.instance, s.origin,
                )  # fmt: skip
        return None

    def corner(self, e: Load, moves: Mapping[int, Sequence[tuple[Var, int]]]) -> tuple[Expr, ...] | None:
        """The subscripts where the loops begin; None unless the loops move them as they should."""
        if mma_feature(e.dtype.name) not in self.target.features or e.array not in self.shared:
            return None
        inner = {v.name for steps in moves.values() for v, _ in steps} - {self.x, self.y}
        index: list[Expr] = []
        for d, sub in enumerate(e.index):
            form, steps = linear(sub), dict(moves.get(d - len(e.index), ()))
            if any(form.coefficient(v) != c for v, c in steps.items()):
                return None
            threads = (Var(self.x), Var(self.y))
            kept = Linear(tuple(t for t in form.terms if t[0] not in steps or t[0] in threads), form.const)
            rest = [(a, c) for a, c in kept.terms if a not in steps]
            if any(variables(a) & inner for a, _ in rest) or any(variables(a) & {self.x, self.y} for a, _ in rest):
                return None
            if d >= len(e.index) - 2 and (form.const % 8 or any(c % 8 for _, c in rest)):
                return None
            index.append(rebuild(kept))
        return tuple(index)

    def operand(self, e: Expr) -> Load | None:
        """The element that is a factor."""
        if isinstance(e, Cast) and isinstance(e.a, Load) and e.a.dtype.bits == 16 and e.a.dtype.is_float:
            return e.a
        return e if isinstance(e, Load) and e.dtype.name == "f32" and TF32 in self.target.features else None


def _nest(s: Stmt) -> list[Stmt]:
    """A perfect nest of loops and what is in it."""
    out = [s]
    while isinstance(out[-1], For):
        inner = out[-1].body
        out.append(inner.stmts[0] if isinstance(inner, Block) and len(inner.stmts) == 1 else inner)
    return out


def _trip(loop: For) -> int | None:
    limit = full(loop)
    whole = limit is not None and not limit.conditions and loop.step == 1 and loop.lo == const_int(0)
    return limit.trip if limit is not None and whole else None


def _longer_rows(s: Stmt, rows: Mapping[str, int]) -> Stmt:
    """Rows made longer, so that those that a warp reads at once begin in different banks: eight rows of 16 bytes, or
    (`right` of f32, by single elements) four of 32."""
    if isinstance(s, Alloc) and s.buffer.name in rows:
        row, step = s.buffer.shape[-1], rows[s.buffer.name]
        assert isinstance(row, Const)
        units = -(-int(row.value) * s.buffer.dtype.bytes // step)
        longer = const_int((units + 1 - units % 2) * step // s.buffer.dtype.bytes)  # an odd number of steps
        s = replace(s, buffer=replace(s.buffer, shape=(*s.buffer.shape[:-1], longer)))
    return with_bodies(s, tuple(_longer_rows(b, rows) for b in s.bodies()))
