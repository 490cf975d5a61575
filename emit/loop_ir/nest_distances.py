"""How far two arrays of a kernel must lie apart, from the subscripts of its loops.

A write of B comes before an access of A when it stands before it and all loops around both are at the same
iteration, or when one of these loops is at an earlier iteration, the loops outside of that at the same, and those
inside anywhere. So the least and the greatest distance of two linear subscripts are sums over loops: of a loop at
the same iteration counts the difference of the factors, of the loop that carries the order the steps between, of
each other one its range for itself. Where bounds are numbers the ends are those of the real program; else they are
further out.

Loops that begin at a formula (`for i in range(32 * t, ...)`) are counted from there, so that tiles are apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyc.emit.loop_ir.linear import Linear, linear
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, If, Let, Prefetch, Ramp, Stmt, Store, VLoad
from polyc.emit.loop_ir.ranges import Interval, Ranges
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Var, walk
from polyc.poly.records import dataclass

MOST_PAIRS = 40_000
"""Of accesses that are compared one by one; above that, those that differ in constants count as one."""
Terms = tuple[tuple[str, int], ...]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Site:
    """Bytes of an array: `terms` (of variables of loops) plus from `low` to before `high`. `path`: the loops around,
    `first` and `last`: where in the text."""

    array: str
    write: bool
    terms: Terms
    low: int
    high: int
    path: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Loop:
    """A variable that begins at 0, its greatest value, its step, and whether its iterations have an order."""

    top: int
    step: int
    ordered: bool


def nest_distances(function: Function, pairs: Sequence[Pair]) -> dict[Pair, tuple[int, int]]:
    """For pairs of arrays (A, B) the bytes (low, high) between which B's begin minus A's must not lie, if every
    write of B that comes before an access of A shall leave that alone; (0, 0) where none does. Pairs of which
    nothing is known are left out. An access is a read, of a writable array a write, too.
    """
    found = _Sites(function)
    found.visit(function.body, ())
    if found.unknown:
        return {}
    named = {name for pair in pairs for name in pair}
    sites = [s for s in found.sites if s.array in named]
    makes = {b for _, b in pairs}
    writes = [s for s in sites if s.write and s.array in makes]
    if len(writes) * len(sites) > MOST_PAIRS:
        sites = _merged(sites)
        writes = [s for s in sites if s.write and s.array in makes]
        if len(writes) * len(sites) > MOST_PAIRS:
            return {}
    ends: dict[Pair, tuple[int, int]] = dict.fromkeys(pairs, (0, 0))
    met: set[Pair] = set()
    for w in writes:
        for r in sites:
            pair = (r.array, w.array)
            if pair not in ends:
                continue
            for low, high in _apart(w, r, found.loops):
                before = ends[pair] if pair in met else (low, high)
                ends[pair] = (min(low, before[0]), max(high, before[1]))
                met.add(pair)
    return ends


def _apart(w: _Site, r: _Site, loops: dict[str, _Loop]) -> Iterator[tuple[int, int]]:
    """Intervals of r - w for the ways in which the write comes before the access."""
    common = 0
    while common < min(len(w.path), len(r.path)) and w.path[common] == r.path[common]:
        common += 1
    of_w, of_r = dict(w.terms), dict(r.terms)
    for level in range(common + 1):
        if level == common and w.first > r.last:
            continue
        low, high = r.low - w.high, r.high - w.low
        for name in w.path[:level]:
            low, high = _plus(low, high, of_r.get(name, 0) - of_w.get(name, 0), 0, loops[name].top)
        inner = level
        if level < common:
            loop, a, b = loops[w.path[level]], of_r.get(w.path[level], 0), of_w.get(w.path[level], 0)
            if loop.top < loop.step:
                continue  # one iteration
            if loop.ordered:
                # a * (v + d) - b * v for an iteration v and one d later
                low, high = _plus(*_plus(low, high, a - b, 0, loop.top - loop.step), a, loop.step, loop.top)
            else:
                low, high = _plus(*_plus(low, high, a, 0, loop.top), -b, 0, loop.top)
            inner += 1
        for name in r.path[inner:]:
            low, high = _plus(low, high, of_r.get(name, 0), 0, loops[name].top)
        for name in w.path[inner:]:
            low, high = _plus(low, high, -of_w.get(name, 0), 0, loops[name].top)
        yield low, high


def _plus(low: int, high: int, factor: int, first: int, last: int) -> tuple[int, int]:
    """An interval plus `factor` times a number from `first` to `last`."""
    ends = (factor * first, factor * last)
    return low + min(ends), high + max(ends)


def _merged(sites: Sequence[_Site]) -> list[_Site]:
    """Those that differ in constants, in the same loops, as one."""
    out: dict[tuple[str, bool, Terms, tuple[str, ...]], _Site] = {}
    for s in sites:
        key = (s.array, s.write, s.terms, s.path)
        o = out.get(key, s)
        out[key] = _Site(*key[:3], min(s.low, o.low), max(s.high, o.high), s.path, min(s.first, o.first),
                         max(s.last, o.last))  # fmt: skip
    return list(out.values())


class _Sites:
    """The accesses of a function's buffers in the order of the text. `unknown`: some cannot be followed."""

    def __init__(self, function: Function) -> None:
        self.sites: list[_Site] = []
        self.loops: dict[str, _Loop] = {}
        self.unknown = False
        self._buffers = {b.name: b for b in function.buffers}
        self._env = Ranges()
        self._forms: dict[str, Linear] = {}
        self._at = 0

    def visit(self, s: Stmt, path: tuple[str, ...]) -> None:
        """A statement inside the loops of `path`."""
        for e in stmt_exprs(s) if not isinstance(s, (Prefetch, Alloc)) else ():
            for n in walk(e):
                if isinstance(n, (Load, VLoad)):
                    self._access(n.array, n.index, False, path)
        match s:
            case For():
                self._loop(s, path)
            case Let(name, value, body):
                self._env.bind(name, self._env.interval(value))
                if value.dtype.is_int and not any(isinstance(n, (Load, VLoad)) for n in walk(value)):
                    self._forms[name] = self._form(value)
                self.visit(body, path)
            case Store(array, index):
                self._at += 1
                self._access(array, index, True, path)
                self._at += 1
            case Block() | If() | Alloc():
                for body in s.bodies():
                    self.visit(body, path)
            case Prefetch():
                pass
            case _:
                self.unknown = True

    def _loop(self, s: For, path: tuple[str, ...]) -> None:
        first = self._form(s.lo)
        top = self._top(s.hi, first)
        low, high = self._env.interval(s.lo)[0], self._env.interval(s.hi)[1]
        self._env.bind(s.var, (low, None if high is None else high - 1))
        if top is None:
            self.unknown = True
            return
        if top < 0:
            return
        name = f"{s.var}'"
        self.loops[name] = _Loop(top, s.step, s.kind == "serial")
        self._env.bind(name, (0, top))
        self._forms[s.var] = first + Linear(((Var(name, s.lo.dtype), 1),), 0)
        self.visit(s.body, (*path, name))

    def _top(self, hi: Expr, first: Linear) -> int | None:
        """The greatest value of a loop's variable, counted from its first one."""
        if isinstance(hi, Binary) and hi.op == "min":
            found = [t for t in (self._top(hi.a, first), self._top(hi.b, first)) if t is not None]
            return min(found, default=None)
        if isinstance(hi, Cast) and hi.dtype.is_int and hi.a.dtype.is_int:
            return self._top(hi.a, first)
        high = self._interval(self._form(hi) - first)[1]
        return None if high is None else high - 1

    def _form(self, e: Expr) -> Linear:
        """An expression, linear in the variables of loops; the rest are atoms."""
        form = linear(e)
        out = Linear((), form.const)
        for atom, factor in form.terms:
            known = self._forms.get(atom.name) if isinstance(atom, Var) else None
            out += (known or Linear(((atom, 1),), 0)).scale(factor)
        return out

    def _interval(self, form: Linear) -> Interval:
        low: int | None = form.const
        high: int | None = form.const
        for atom, factor in form.terms:
            ends = self._env.interval(atom)
            a, b = ends if factor > 0 else ends[::-1]
            low = None if low is None or a is None else low + factor * a
            high = None if high is None or b is None else high + factor * b
        return low, high

    def _access(self, array: str, index: Sequence[Expr], write: bool, path: tuple[str, ...]) -> None:
        buffer = self._buffers.get(array)
        if buffer is None:
            return
        low = high = 0
        terms: dict[str, int] = {}
        for e, stride in zip(index, _byte_strides(buffer), strict=True):
            if isinstance(e, Ramp):
                length = e.stride * (e.count - 1) * stride
                low, high = low + min(0, length), high + max(0, length)
                e = e.base
            form = self._form(e)
            low, high = low + form.const * stride, high + form.const * stride
            for atom, factor in form.terms:
                if isinstance(atom, Var) and atom.name in self.loops:
                    terms[atom.name] = terms.get(atom.name, 0) + factor * stride
                    continue
                a, b = self._env.interval(atom)
                if a is None or b is None:
                    self.unknown = True
                    return
                low, high = _plus(low, high, factor * stride, a, b)
        found = tuple(sorted((n, c) for n, c in terms.items() if c))
        self.sites.append(_Site(array, write, found, low, high + buffer.dtype.bytes, path, self._at, self._at))


def _byte_strides(b: Buffer) -> list[int]:
    strides, stride = [], b.dtype.bytes
    for e in reversed(b.shape):
        strides.append(stride)
        stride *= int(e.value) if isinstance(e, Const) else 0
    return strides[::-1]
