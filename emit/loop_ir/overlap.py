"""How far two arrays of a kernel must lie apart: less than their sizes, where elements of one are dead before elements
of the other are written.

Elements die one by one: what a kernel has read for the last time may be written over by what it makes. In the order of
the loops as they stand (after tiling, vectors, unrolling) a write of byte `w` of B before an access of byte `r` of A
forbids that both are the same byte, that is the distance `offset(B) - offset(A) = r - w`. The least and the greatest of
these distances are the ends of the forbidden interval; every other distance is legal.

The loops are followed iteration by iteration as deep as a number of pieces allows. What is below is one piece, of which
nothing is known but the extents that it accesses: any access in it may come before any other. So a shallower walk
forbids more, never less, and one down to single statements gives the exact distance for contiguous extents. A
parallel loop is one piece: its iterations have no order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from polyc.emit.loop_ir.linear import Linear, linear
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, If, Let, Prefetch, Ramp, Stmt, Store, VLoad
from polyc.emit.loop_ir.nest_distances import nest_distances
from polyc.emit.loop_ir.ranges import Ranges
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.poly.expr import Binary, Const, Expr, Load, Unary, walk
from polyc.poly.records import dataclass
from polyc.poly.violations import RECORD

PIECES = 4_000
DEEPEST = 12
Gaps = dict[tuple[str, str], tuple[int, int]]
Extent = tuple[int, int]
"""First and last element, row by row."""


def gaps(function: Function, pieces: int = PIECES) -> Gaps:
    """Pairs of arrays (A, B) with bytes (low, high): where A is dead after the kernel and B holds nothing before it,
    B's begin minus A's begin must not lie strictly between low and high, and may be everything else.

    A is an operand that is only read, or memory of the kernel's own; B is a result, or such memory. Pairs that must lie
    apart as if they were unrelated are left out. A function whose sizes are not numbers has none.
    """
    if function.params or any(not isinstance(e, Const) for b in function.buffers for e in b.shape):
        return {}
    found: Gaps = {}
    for depth in range(1, DEEPEST):
        walked = _Walk(function, depth, pieces)
        try:
            walked.follow(function.body, depth)
        except _TooMany:
            break
        found = walked.gaps()
        if not walked.cut:
            break
    # Two ways to see the same loops, each of which forbids what the program does, and perhaps more.
    for pair, (low, high) in nest_distances(function, list(found)).items():
        found[pair] = (max(low, found[pair][0]), min(high, found[pair][1]))
    sizes = {b.name: b.dtype.bytes * _elements(b) for b in function.buffers}
    return {(a, b): gap for (a, b), gap in found.items() if gap[0] > -sizes[b] or gap[1] < sizes[a]}


def _elements(b: Buffer) -> int:
    return prod(int(e.value) for e in b.shape if isinstance(e, Const))


class _TooMany(Exception):
    """There are more pieces than are allowed."""


@dataclass(frozen=True, slots=True)
class _Access:
    """All elements of `array` from the value of `form` plus `low` to its value plus `high`."""

    array: str
    write: bool
    form: tuple[tuple[Expr, int], ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """What a statement accesses, inside of the loops and bindings in it."""

    binder: For | Let | None
    accesses: tuple[_Access, ...]
    inner: tuple[_Piece, ...]


class _Walk:
    """One walk over the loops, `depth` of them deep. `cut`: some are deeper."""

    def __init__(self, function: Function, depth: int, pieces: int) -> None:
        self.cut = False
        self._buffers = {b.name: b for b in function.buffers if not b.name.startswith(RECORD)}
        self._elements = {name: _elements(b) for name, b in self._buffers.items()}
        self._strides = {name: _strides(b) for name, b in self._buffers.items()}
        self._left = pieces
        self._env = Ranges()
        self._pieces: dict[int, tuple[Stmt, _Piece]] = {}
        self._written: dict[str, Extent] = {}
        self._gaps: Gaps = {}

    def gaps(self) -> Gaps:
        """In bytes; (0, 0) where no write comes before an access."""
        names, makes = self._buffers, [n for n, b in self._buffers.items() if b.writable]
        return {(a, b): self._gaps.get((a, b), (0, 0)) for a in names for b in makes if a != b}

    def follow(self, s: Stmt, depth: int) -> None:
        """In the order of the loops."""
        match s:
            case Block(stmts):
                for inner in stmts:
                    self.follow(inner, depth)
            case Alloc(_, body):
                self.follow(body, depth)
            case Let(name, value, body):
                self._count(s, self._of_expressions)
                self._env.bind(name, self._env.interval(value))
                self.follow(body, depth)
            case If(cond, then, orelse):
                self._count(s, self._of_expressions)
                truth = holds(self._env, cond)
                if truth is not False:
                    self.follow(then, depth)
                if truth is not True and orelse is not None:
                    self.follow(orelse, depth)
            case For(kind="serial") if depth and (bounds := self._bounds(s)) is not None:
                for at in range(*bounds, s.step):
                    self._env.bind(s.var, (at, at))
                    self._count(s, self._of_expressions)
                    self.follow(s.body, depth - 1)
            case Store():
                # What a statement reads, it has read before it writes.
                self._count(s, self._of_expressions)
                self._count(s, self._of_store)
            case Prefetch():
                pass
            case _:
                self.cut = self.cut or (isinstance(s, For) and s.kind == "serial")
                self._count(s, self._of_all)

    def _bounds(self, s: For) -> tuple[int, int] | None:
        low, high = self._env.interval(s.lo), self._env.interval(s.hi)
        if low[0] is None or high[0] is None or low[0] != low[1] or high[0] != high[1]:
            return None
        return low[0], high[0]

    # ---- one piece -----------------------------------------------------------------------------

    def _count(self, s: Stmt, piece_of: Callable[[Stmt], _Piece]) -> None:
        key = id(s) * 4 + {"_of_expressions": 0, "_of_store": 1, "_of_all": 2}[piece_of.__name__]
        if key not in self._pieces:
            self._pieces[key] = (s, piece_of(s))
        piece = self._pieces[key][1]
        if not piece.accesses and not piece.inner:
            return
        self._left -= 1
        if self._left < 0:
            raise _TooMany
        reads: dict[str, Extent] = {}
        writes: dict[str, Extent] = {}
        self._extents(piece, reads, writes)
        for name, extent in writes.items():
            self._written[name] = _hull(self._written.get(name), extent)
        for name in dict.fromkeys((*reads, *writes)):
            # A result that is written again is not written over by this: only what the kernel owns dies before its end.
            extent = _hull(reads.get(name), writes.get(name)) if name in reads else writes[name]
            for other, written in self._written.items():
                if other != name:
                    self._forbid(name, extent, other, written)

    def _forbid(self, a: str, accessed: Extent, b: str, written: Extent) -> None:
        """Elements of B have been written when those of A are accessed."""
        size_a, size_b = self._buffers[a].dtype.bytes, self._buffers[b].dtype.bytes
        low = accessed[0] * size_a - (written[1] + 1) * size_b
        high = (accessed[1] + 1) * size_a - written[0] * size_b
        before = self._gaps.get((a, b))
        self._gaps[a, b] = (low, high) if before is None else (min(low, before[0]), max(high, before[1]))

    def _extents(self, piece: _Piece, reads: dict[str, Extent], writes: dict[str, Extent]) -> None:
        """The extents of a piece for the values of the variables around it, added to those that are known."""
        match piece.binder:
            case For(var, lo, hi):
                first, end = self._env.interval(lo)[0], self._env.interval(hi)[1]
                if first is not None and end is not None and end <= first:
                    return
                self._env.bind(var, (first, None if end is None else end - 1))
            case Let(name, value):
                self._env.bind(name, self._env.interval(value))
        for access in piece.accesses:
            into = writes if access.write else reads
            into[access.array] = _hull(into.get(access.array), self._extent(access))
        for inner in piece.inner:
            self._extents(inner, reads, writes)

    def _extent(self, access: _Access) -> Extent:
        first, last, end = access.low, access.high, self._elements[access.array] - 1
        for atom, factor in access.form:
            low, high = self._env.interval(atom)
            if low is None or high is None:
                return (0, end)
            first += factor * (low if factor > 0 else high)
            last += factor * (high if factor > 0 else low)
        return (max(first, 0), min(last, end))

    # ---- what statements access ----------------------------------------------------------------

    def _of_expressions(self, s: Stmt) -> _Piece:
        """What its own expressions read."""
        return _Piece(None, self._merged([a for e in stmt_exprs(s) for a in self._reads(e)]), ())

    def _of_store(self, s: Stmt) -> _Piece:
        assert isinstance(s, Store)
        return _Piece(None, self._merged(self._access(s.array, s.index, True)), ())

    def _of_all(self, s: Stmt) -> _Piece:
        own = [a for e in stmt_exprs(s) for a in self._reads(e)]
        if isinstance(s, Store):
            own += self._access(s.array, s.index, True)
        inner = [self._of_all(b) for b in s.bodies()]
        binder = s if isinstance(s, (For, Let)) else None
        plain = [p for p in inner if p.binder is None]
        own += [a for p in plain for a in p.accesses]
        nested = [p for p in inner if p.binder is not None] + [q for p in plain for q in p.inner]
        return _Piece(binder, self._merged(own), tuple(p for p in nested if p.accesses or p.inner))

    def _reads(self, e: Expr) -> list[_Access]:
        return [a for n in walk(e) if isinstance(n, (Load, VLoad)) for a in self._access(n.array, n.index, False)]

    def _access(self, array: str, index: Sequence[Expr], write: bool) -> list[_Access]:
        if array not in self._buffers:
            return []
        flat, span = Linear((), 0), (0, 0)
        for e, stride in zip(index, self._strides[array], strict=True):
            if isinstance(e, Ramp):
                length = e.stride * (e.count - 1) * stride
                span = (span[0] + min(0, length), span[1] + max(0, length))
                e = e.base
            flat += linear(e).scale(stride)
        return [_Access(array, write, flat.terms, flat.const + span[0], flat.const + span[1])]

    @staticmethod
    def _merged(accesses: Sequence[_Access]) -> tuple[_Access, ...]:
        """Those that differ in constants as one each."""
        ends: dict[tuple[str, bool, tuple[tuple[Expr, int], ...]], Extent] = {}
        for a in accesses:
            key = (a.array, a.write, a.form)
            ends[key] = _hull(ends.get(key), (a.low, a.high))
        return tuple(_Access(*key, *extent) for key, extent in ends.items())


def _strides(b: Buffer) -> list[int]:
    strides, stride = [], 1
    for e in reversed(b.shape):
        strides.append(stride)
        stride *= int(e.value) if isinstance(e, Const) else 0
    return strides[::-1]


def _hull(a: Extent | None, b: Extent | None) -> Extent:
    if a is None or b is None:
        found = a or b
        assert found is not None
        return found
    return (min(a[0], b[0]), max(a[1], b[1]))


def holds(env: Ranges, cond: Expr) -> bool | None:
    """Whether a condition holds for all values of the variables (True), for none (False); None where that is not
    known."""
    if isinstance(cond, Const):
        return bool(cond.value)
    if isinstance(cond, Unary) and cond.op == "not":
        inner = holds(env, cond.a)
        return None if inner is None else not inner
    if not isinstance(cond, Binary):
        return None
    if cond.op in ("and", "or"):
        ends = (holds(env, cond.a), holds(env, cond.b))
        decisive = cond.op == "or"
        return decisive if decisive in ends else None if None in ends else not decisive
    if not cond.a.dtype.is_int:
        return None
    (a_low, a_high), (b_low, b_high) = env.interval(cond.a), env.interval(cond.b)

    def below(x: int | None, y: int | None, equal: bool) -> bool:
        return x is not None and y is not None and (x < y or (equal and x == y))

    surely = {
        "<": (below(a_high, b_low, False), below(b_high, a_low, True)),
        "<=": (below(a_high, b_low, True), below(b_high, a_low, False)),
        ">": (below(b_high, a_low, False), below(a_high, b_low, True)),
        ">=": (below(b_high, a_low, True), below(a_high, b_low, False)),
    }.get(cond.op)
    if surely is None:
        return None
    return True if surely[0] else False if surely[1] else None
