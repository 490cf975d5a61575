"""Wide accesses: loops over neighbouring elements become vectors of 16 bytes at most.

A `vector` loop of constant length becomes vector stores where every access in it is one place or, along
the loop, contiguous and provably aligned; so does an unrolled loop that only copies. Other vector loops
are unrolled. CUDA faults on wide accesses that are not aligned, so what is not proved stays scalar; the
base of every array is taken to be aligned to 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyc.emit.gpu.passes.launch_assumptions import divisor, multiples
from polyc.emit.loop_ir.linear import Linear, linear, rebuild, variables
from polyc.emit.loop_ir.loops import Alloc, Block, Broadcast, Buffer, For, Function, Launch, Ramp, Stmt, Store, VLoad
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Call, Expr, Load, Unary, Var
from polyc.poly.records import dataclass
from polyc.poly.target import WIDEST_ACCESS

SMALLEST = 4  # bytes of an asynchronous copy
ELEMENTWISE = frozenset(("+", "-", "*", "/", "min", "max"))


def widen(fn: Function) -> Function:
    """Expand all vector loops."""
    return replace(fn, body=_visit(fn.body, {b.name: b for b in fn.buffers}, {}))


def _visit(s: Stmt, buffers: Mapping[str, Buffer], known: Mapping[str, int]) -> Stmt:
    """`known`: what sizes are multiples of."""
    if isinstance(s, Launch):
        known = multiples(s.given)
    if isinstance(s, Alloc):
        return replace(s, body=_visit(s.body, {**buffers, s.buffer.name: s.buffer}, known))
    if isinstance(s, For) and (s.kind == "vector" or (s.kind == "unroll" and _copies(s.body))):
        wide = _widened(s, buffers, known)
        if wide is not None:
            return wide
        s = _at_once(replace(s, kind="unroll", factor=None))
    return with_bodies(s, tuple(_visit(b, buffers, known) for b in s.bodies()))


def _at_once(s: Stmt) -> Stmt:
    """Elements that are too small for asynchronous copies of their own are copied at once."""
    if isinstance(s, Store):
        return replace(s, asynchronous=False) if s.value.dtype.bytes < SMALLEST else s
    return with_bodies(s, tuple(_at_once(b) for b in s.bodies()))


def _copies(body: Stmt) -> bool:
    return isinstance(body, Store) and body.instance is None and isinstance(body.value, Load)


def _widened(loop: For, buffers: Mapping[str, Buffer], known: Mapping[str, int]) -> Stmt | None:
    """The loop as vector stores, None if it cannot be."""
    limit = full(loop)
    stores = loop.body.stmts if isinstance(loop.body, Block) else (loop.body,)
    if limit is None or limit.conditions or loop.step != 1:
        return None
    out: list[Stmt] = []
    for s in stores:
        if not isinstance(s, Store) or s.mask is not None:
            return None
        lanes = WIDEST_ACCESS // s.value.dtype.bytes
        if lanes not in (2, 4, 8) or limit.trip % lanes:
            return None
        for first in range(0, limit.trip, lanes):
            made = _Lanes(loop.var, linear(loop.lo).shift(first), lanes, buffers, known).store(s)
            if made is None:
                return None
            out.append(made)
    if len(stores) > 1 and limit.trip > WIDEST_ACCESS // 4:
        return None  # the chunks of several stores would change places
    return out[0] if len(out) == 1 else Block(tuple(out))


def rows_aligned(buffer: Buffer, count: int, known: Mapping[str, int]) -> bool:
    """Whether each row of an array begins at a multiple of `count` elements; `known`: what sizes are multiples of."""
    length = 1
    for e in reversed(buffer.shape[1:]):
        length *= divisor(e, known)
        if length % count:
            return False
    return True


@dataclass(frozen=True)
class _Lanes:
    """`count` iterations of a loop over `var`, from `start` on."""

    var: str
    start: Linear
    count: int
    buffers: Mapping[str, Buffer]
    known: Mapping[str, int]

    def store(self, s: Store) -> Store | None:
        index = self.subscripts(s.array, s.index)
        value = self.value(s.value)
        if index is None or value is None:
            return None
        instance = s.instance
        if instance is not None:
            instance = (instance[0], tuple(self.ramp(e) if self.moves(e) else e for e in instance[1]))
        return replace(s, index=index, value=value, instance=instance)

    def moves(self, e: Expr) -> bool:
        return self.var in variables(e)

    def value(self, e: Expr) -> Expr | None:
        """The expression in all lanes."""
        if not self.moves(e):
            return Broadcast(e, self.count, e.dtype)
        if isinstance(e, Load):
            index = self.subscripts(e.array, e.index)
            return None if index is None else VLoad(e.array, index, None, self.count, e.dtype)
        simple = isinstance(e, Unary) and e.op == "neg" or isinstance(e, Binary) and e.op in ELEMENTWISE
        if not (simple or (isinstance(e, Call) and e.fn == "fma")) or not e.dtype.is_float:
            return None
        kids = [self.value(c) for c in e.children()]
        found = tuple(k for k in kids if k is not None)
        return e.with_children(found) if len(found) == len(kids) else None

    def subscripts(self, array: str, index: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
        """Contiguous along the last dimension and aligned; elements of shared memory and registers may also
        lie apart, as they are then accessed one by one."""
        moved = [d for d, e in enumerate(index) if self.moves(e)]
        if len(moved) != 1:
            return None
        (d,) = moved
        slope = linear(index[d]).coefficient(Var(self.var))
        lanes = self.ramp(index[d])
        if self.moves(lanes) or slope == 0:
            return None
        buffer = self.buffers[array]
        if d < len(index) - 1 or slope != 1:
            return (*index[:d], lanes, *index[d + 1 :]) if buffer.space in ("shared", "register") else None
        base = linear(lanes.base)
        aligned = divisor(rebuild(base), self.known) % self.count == 0
        return (*index[:d], lanes) if aligned and rows_aligned(buffer, self.count, self.known) else None

    def ramp(self, e: Expr) -> Ramp:
        slope = linear(e).coefficient(Var(self.var))
        rest = linear(e) - linear(Var(self.var)).scale(slope) + self.start.scale(slope)
        return Ramp(rebuild(rest), slope, self.count, i64)
