"""Loops bound to blocks and threads become launches.

The outermost bound loop of a nest is a launch. Inside, `for v in range(lo, hi)` bound to an axis of
`n` threads becomes `v = lo + id` under the guard `v < hi`, or a serial loop over chunks of `n` where
there may be more iterations than threads; blocks likewise. A store that no loop of an axis is around
runs on index 0 of that axis alone. Guards are put on the stores themselves, so that barriers find
uniform control flow around them; `polyc.emit.gpu.passes.guards` moves them out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import get_args

from polyc.emit.gpu.passes.cooperative_copies import UNROLLED, WHOLE, Crew, cooperative, copied_buffer, transposes
from polyc.emit.gpu.passes.extents import Extents, axis_of, bound_loops, reads
from polyc.emit.gpu.passes.guards import guarded, holds_for_some
from polyc.emit.gpu.passes.launch_assumptions import both, multiples, worthwhile
from polyc.emit.gpu.passes.private_registers import followed
from polyc.emit.loop_ir.linear import linear, rebuild, variables
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, If, Launch, Let, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import Names, binders, stmt_exprs, with_bodies
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import bool_
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Expr, Load, Unary, Var, const_int, loads, substitute
from polyc.poly.records import dataclass
from polyc.poly.scop import ENDLESS
from polyc.poly.target import WIDEST_ACCESS, GpuTarget
from polyc.poly.tree import GpuAxis, is_bound


def launches(fn: Function, target: GpuTarget) -> Function:
    """`fn` with its bound loops as launches; what lies outside all of them runs in launches of one thread.

    Raises:
        BuildError: a loop around a launch depends on data, or a buffer does not fit where it stands.
    """
    host = _Host(fn, target)
    body = host.visit(fn.body, frozenset(fn.params))
    return replace(fn, body=body, notes=(*fn.notes, *dict.fromkeys(host.notes)))


class _Host:
    """The statements outside launches."""

    def __init__(self, fn: Function, target: GpuTarget) -> None:
        self.fn = fn
        self.target = target
        self.arrays = {b.name: b for b in fn.buffers}
        self.arrays |= {
            s.buffer.name: s.buffer for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space == "heap"
        }
        self.names = Names({fn.name, *fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))
        self.notes: list[str] = []
        self.count = 0

    def visit(self, s: Stmt, known: frozenset[str]) -> Stmt:
        """`known`: the variables that the host has here."""
        if isinstance(s, Alloc) and s.buffer.space == "heap":
            return replace(s, body=self.visit(s.body, known))
        if isinstance(s, Block):
            return self.block(s, known)
        if isinstance(s, Alloc) and not _on_heap(s) and not any(x.kind.startswith("block.") for x in bound_loops(s)):
            return self.launch(s, known)  # one block, whose loops over blocks left no loop
        if (isinstance(s, For) and is_bound(s.kind)) or not (bound_loops(s) or _on_heap(s)):
            return self.launch(s, known)
        if isinstance(s, For):
            if reads(s.lo, s.hi):
                raise self.error(f"loop '{s.loop}' depends on data and is around loops of a GPU; bind it, or a "
                                 "loop outside it, to blocks")  # fmt: skip
            s = self.without_end(s)
            return replace(s, kind="serial", factor=None, body=self.visit(s.body, known | {s.var}))
        if isinstance(s, If):
            if reads(s.cond):
                raise self.error("a condition on data is around loops of a GPU; bind a loop outside it to blocks")
            orelse = None if s.orelse is None else self.visit(s.orelse, known)
            return If(s.cond, self.visit(s.then, known), orelse)
        if isinstance(s, Let):
            return replace(s, body=self.visit(s.body, known | {s.name}))
        assert isinstance(s, Alloc), type(s)
        raise self.error(f"buffer '{s.buffer.name}' ({s.buffer.space}) is around several launches; promote it inside "
                         "a loop over blocks")  # fmt: skip

    def without_end(self, s: For) -> For:
        """The loop to its bound: the flag that would end it early is not the host's, nor that of several threads."""
        if s.hi == const_int(ENDLESS):
            raise self.error(f"data end loop '{s.loop}', which is around loops of a GPU; bind a loop outside it to "
                             "blocks")  # fmt: skip
        return replace(s, until=None)

    def error(self, text: str) -> BuildError:
        return BuildError(f"{self.fn.name}: {text}")

    def block(self, block: Block, known: frozenset[str]) -> Stmt:
        """Neighbours without loops over blocks share a launch, of one block."""
        out: list[Stmt] = []
        plain: list[Stmt] = []
        for s in (*block.stmts, None):
            if s is not None and _for_one_block(s):
                plain.append(s)
                continue
            if plain:
                out.append(self.launch(Block(tuple(plain)), known))
                plain = []
            if s is not None:
                out.append(self.visit(s, known))
        return Block(tuple(out))

    def launch(self, s: Stmt, known: frozenset[str]) -> Stmt:
        """One launch, or two of which the host takes the one that suits the sizes."""
        name = self.names.fresh(f"{self.fn.name}_{self.count}")
        self.count += 1
        own = followed(s)
        general = self.mapped(s, known, name, (), own)
        given = worthwhile(s, self.arrays, frozenset(self.fn.params), own)
        if not given:
            return general
        return If(both(given), self.mapped(s, known, self.names.fresh(f"{name}_wide"), given, own), general)

    def mapped(self, s: Stmt, known: frozenset[str], name: str, given: tuple[Expr, ...], own: frozenset[str]) -> Launch:
        extents = Extents(s, known, self.target)
        device = _Device(name, self, extents, multiples(given), own)
        body = device.visit(s, _Spot())
        for buffer in reversed(device.shared.values()):
            body = Alloc(_padded(buffer) if buffer.name in device.padded else buffer, body)
        return Launch(name, tuple(device.grid.values()), tuple(device.threads.values()), body, given)


def _for_one_block(s: Stmt) -> bool:
    """Whether a statement has no loop over blocks; what memory decides stays in launches of its own."""
    bound = bound_loops(s)
    if _on_heap(s) or any(x.kind.startswith("block.") for x in bound):
        return False
    return not bound or not any(reads(*e) for x in walk(s) if (e := _deciding(x)))


def _deciding(s: Stmt) -> tuple[Expr, ...]:
    """The expressions on which the way through a statement depends."""
    if isinstance(s, For):
        return (s.lo, s.hi) if s.until is None else (s.lo, s.hi, s.until)
    return (s.cond,) if isinstance(s, If) else ()


def _on_heap(s: Stmt) -> bool:
    return any(isinstance(x, Alloc) and x.buffer.space == "heap" for x in walk(s))


@dataclass(frozen=True)
class _Spot:
    """Where the device's code stands: `guards` still to be put on the stores, the axes that loops around
    are bound to, and what the variables of these loops are."""

    guards: tuple[Expr, ...] = ()
    axes: frozenset[str] = frozenset()
    values: Mapping[str, Expr] = field(default_factory=dict)

    def under(self, *guards: Expr) -> _Spot:
        return replace(self, guards=(*self.guards, *guards))

    def free(self) -> _Spot:
        return replace(self, guards=())


class _Device:
    """The statements of one launch. `grid` and `threads` by axis letter; `known`: what sizes are multiples of;
    `own`: the buffers of which a thread has the elements that its number leads to (`private_registers.py`)."""

    def __init__(self, name: str, host: _Host, extents: Extents, known: Mapping[str, int], own: frozenset[str]) -> None:
        self.name = name
        self.known = known
        self.own = own
        self.host = host
        self.extents = extents
        self.grid = {a: (host.names.fresh(f"b{a}"), n) for a, n in extents.blocks.items()}
        self.threads = {a: (host.names.fresh(f"t{a}"), n) for a, n in extents.threads.items()}
        self.shared: dict[str, Buffer] = {}
        self.padded: set[str] = set()
        self.thread = _number(tuple(self.threads.values()))

    def visit(self, s: Stmt, at: _Spot) -> Stmt:
        copied = copied_buffer(s, self.shared)
        if copied is not None:
            self.check_alike(s, copied, at)
            self.padded |= {copied.name} if transposes(s, copied) else set()
            guards = holds_for_some(
                (*self.missing(at.axes, "block"), *at.guards), at.values, tuple(self.threads.values())
            )
            arrays = {} if copied.name in self.own else self.host.arrays  # (element by element)
            together = WHOLE if self.host.target.kind == "opencl" else UNROLLED
            crew = Crew(self.thread, self.extents.block_threads, arrays, self.known, self.host.names, together)
            return cooperative(s, copied, crew, guards)
        if isinstance(s, Store):
            self.padded |= set(self.read_by_columns(s, at))
            return guarded(s, (*self.missing(at.axes, "block"), *self.missing(at.axes, "thread"), *at.guards))
        if isinstance(s, For):
            if s.until is not None and bound_loops(s.body):
                s = self.host.without_end(s)
            if reads(*_deciding(s)) and not self.settled(s, at):
                return self.on_data(s, at)
            return self.bound(s, at) if is_bound(s.kind) else self.serial(s, at)
        if isinstance(s, If):
            return self.condition(s, at)
        if isinstance(s, Alloc):
            return self.alloc(s, at)
        if isinstance(s, Let) and reads(s.value) and not self.settled(s, at):
            return self.on_data(s, at)
        return with_bodies(s, tuple(self.visit(b, at) for b in s.bodies()))

    def check_alike(self, copy: Stmt, buffer: Buffer, at: _Spot) -> None:
        """A copy that all threads do together may not depend on which thread does it."""
        ids = {v for v, _ in self.threads.values()}
        for s in walk(copy):
            if any(ids & variables(substitute(e, at.values)) for e in stmt_exprs(s)):
                raise self.error(
                    f"the copy of shared buffer '{buffer.name}' is not the same for all threads of a block; promote "
                    "outside the loops over threads, or tile so that they touch whole boxes"
                )

    def read_by_columns(self, s: Store, at: _Spot) -> Iterator[str]:
        """The shared buffers of which neighbouring threads access elements of different rows."""
        x = self.threads["x"][0]
        for e in (Load(s.array, s.index, s.value.dtype), *loads(s.value)):
            if e.array in self.shared and any(x in variables(substitute(i, at.values)) for i in e.index[:-1]):
                yield e.array

    def settled(self, s: Stmt, at: _Spot) -> bool:
        """Whether all threads that come here run something of `s`."""
        return not at.guards and not self.idle(s, at)

    def idle(self, s: Stmt, at: _Spot) -> tuple[Expr, ...]:
        """`id == 0` for each axis that no loop around or inside is bound to."""
        all_axes = at.axes | {x.kind for x in bound_loops(s)}
        return (*self.missing(all_axes, "block"), *self.missing(all_axes, "thread"))

    def on_data(self, s: Stmt, at: _Spot) -> Stmt:
        """What reads memory to decide how it goes on does so in the threads that run it alone: in others
        the elements may not exist, or may be written at the same time."""
        idle = self.idle(s, at)
        alone = {axis for axis in get_args(GpuAxis) if axis not in {x.kind for x in bound_loops(s)}}
        return guarded(self.visit(s, replace(at.free(), axes=at.axes | alone)), (*idle, *at.guards))

    def missing(self, axes: frozenset[str], level: str) -> tuple[Expr, ...]:
        """`id == 0` for each other axis of the grid or the block."""
        ids: Mapping[str, tuple[str, Expr | int]] = self.grid if level == "block" else self.threads
        return tuple(
            Binary("==", Var(v), const_int(0), bool_)
            for a, (v, n) in ids.items()
            if axis_of(level, a) not in axes and n not in (1, const_int(1))
        )

    def serial(self, s: For, at: _Spot) -> Stmt:
        return replace(s, kind="serial" if s.kind == "parallel" else s.kind, body=self.visit(s.body, at))

    def condition(self, s: If, at: _Spot) -> Stmt:
        """A condition becomes one of the stores below; one on data stays where it is."""
        if reads(s.cond):
            if not self.settled(s, at):
                return self.on_data(s, at)
            orelse = None if s.orelse is None else self.visit(s.orelse, at)
            return If(s.cond, self.visit(s.then, at), orelse)
        then = self.visit(s.then, at.under(s.cond))
        if s.orelse is None:
            return then
        return Block((then, self.visit(s.orelse, at.under(Unary("not", s.cond, bool_)))))

    def alloc(self, s: Alloc, at: _Spot) -> Stmt:
        b = s.buffer
        if b.space == "shared":
            if not all(isinstance(e, Const) for e in b.shape):
                raise self.error(f"shared buffer '{b.name}' has no constant size; tile the loops around it")
            self.shared[b.name] = b
            return self.visit(s.body, at)
        if b.space == "heap":
            raise self.error(f"buffer '{b.name}' on the heap lies inside a launch; promote it to shared memory or "
                             "registers, or outside the loops over blocks")  # fmt: skip
        for inner in bound_loops(s.body):
            raise self.error(f"each thread has its own '{b.name}' ({b.space}), but loop '{inner.loop}' ({inner.kind}) "
                             "is inside it; promote inside that loop, or to shared memory")  # fmt: skip
        return replace(s, body=self.visit(s.body, at))

    def error(self, text: str) -> BuildError:
        return BuildError(f"{self.name}: {text}")

    def bound(self, s: For, at: _Spot) -> Stmt:
        level, letter = s.kind.split(".")
        variable, count = self.grid[letter] if level == "block" else self.threads[letter]
        extent = count if isinstance(count, Expr) else const_int(count)
        fits, exact = self.coverage(s, extent)
        guard = () if fits and exact else (Binary("<", Var(s.var), s.hi, bool_),)
        index = linear(Var(variable)).scale(s.step)
        if fits:
            first = rebuild(linear(s.lo) + index)
            return Let(s.var, first, self.inside(s, at, first, guard))
        self.host.notes.append(f"loop '{s.loop}' ({s.kind}) may have more iterations than there are {level}s: "
                               "each takes several, one after another")  # fmt: skip
        # A symbolic number of blocks is cut at the target's limit: it is the limit where there are several chunks.
        stride = int(extent.value) if isinstance(extent, Const) else self.extents.limit(letter)
        chunk = self.host.names.fresh(f"{s.var}_chunk")
        first = rebuild(linear(Var(chunk)) + index)
        body = Let(s.var, first, self.inside(s, at, first, guard))
        return For(chunk, s.lo, s.hi, s.step * stride, body, "serial", None, s.loop, s.until)

    def inside(self, s: For, at: _Spot, first: Expr, guard: Sequence[Expr]) -> Stmt:
        """The body of a bound loop, whose variable is `first`."""
        values = {**at.values, s.var: substitute(first, at.values)}
        return self.visit(s.body, replace(at.under(*guard), axes=at.axes | {s.kind}, values=values))

    def coverage(self, s: For, extent: Expr) -> tuple[bool, bool]:
        """Whether there is an index for each iteration, and an iteration for each index."""
        if s in self.extents.trips and s.kind.startswith("block."):
            if s.kind[-1] in self.extents.capped:
                return False, False
            return True, self.extents.trips[s] == extent
        trip = full(s)
        if trip is None or not isinstance(extent, Const):
            return False, False
        exact = trip.trip == extent.value and not trip.conditions and linear(s.hi) == linear(trip.hi)
        return trip.trip <= int(extent.value), exact


def _padded(buffer: Buffer) -> Buffer:
    """With longer rows, so that the elements of a column lie in different banks; rows of whole 16 bytes stay so."""
    row = buffer.shape[-1]
    assert isinstance(row, Const)
    count = max(1, WIDEST_ACCESS // buffer.dtype.bytes)
    more = count if row.value % count == 0 else 1
    return replace(buffer, shape=(*buffer.shape[:-1], const_int(int(row.value) + more)))


def _number(threads: Sequence[tuple[str, int]]) -> Expr:
    """The number of a thread in its block, x fastest."""
    out = linear(const_int(0))
    stride = 1
    for variable, count in threads:
        if count != 1:
            out = out + linear(Var(variable)).scale(stride)
        stride *= count
    return rebuild(out)
