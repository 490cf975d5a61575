"""Which loads cannot leave their array: a small interval analysis over loop bounds.

Emitters ask it before they evaluate a load whose result a lazy `Select` may throw away.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd

from polyc.emit.loop_ir.linear import Linear, linear
from polyc.emit.loop_ir.loops import Broadcast, Buffer, For, Ramp, VLoad
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Unary, Var, walk

Interval = tuple[int | None, int | None]  # inclusive; None = unbounded
Terms = frozenset[tuple[Expr, int]]  # of a sum of variables, without its constant
UNKNOWN: Interval = (None, None)


class Ranges:
    """Value ranges of the variables in scope, and accesses known to be inside their arrays."""

    def __init__(self) -> None:
        self._bounds: dict[str, Interval] = {}
        self._below: dict[str, Expr] = {}  # var < expr, for symbolic loop ends
        self._divisors: dict[str, int] = {}
        self._learnt: list[list[tuple[str, tuple[Expr, ...], tuple[Expr, ...]]]] = [[]]  # not looked at yet
        self._inside: list[set[tuple[str, tuple[Expr, ...]]]] = [set()]
        self._least: list[dict[Terms, int]] = [{}]
        self._most: list[dict[tuple[Terms, Terms], int]] = [{}]

    def bind(self, name: str, values: Interval) -> None:
        """A variable's values, from here on."""
        self._bounds[name] = values

    @contextmanager
    def loop(self, loop: For) -> Iterator[None]:
        """While the body of `loop` is emitted."""
        low, high = self.interval(loop.lo)[0], self.interval(loop.hi)[1]
        self._bounds[loop.var] = (low, None if high is None else high - 1)
        self._below[loop.var] = loop.hi
        self._divisors[loop.var] = gcd(self.divisor(loop.lo), loop.step)
        with self.scope():
            yield
        del self._bounds[loop.var], self._below[loop.var], self._divisors[loop.var]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Code that may not run: what is learnt inside is forgotten after it."""
        self._learnt.append([])
        self._inside.append(set())
        self._least.append({})
        self._most.append({})
        yield
        self._learnt.pop()
        self._inside.pop()
        self._least.pop()
        self._most.pop()

    def learn(self, array: str, index: tuple[Expr, ...], shape: tuple[Expr, ...] = ()) -> None:
        """The element is accessed unconditionally at this point, so its subscripts are inside an array of `shape`:
        what is known of sums of variables says so of their neighbours in other arrays.

        Subscripts that read memory are not remembered: a store may change them.
        """
        self._learnt[-1].append((array, index, shape))

    def _look(self) -> None:
        """Take in what was learnt: few functions have accesses that anybody asks about."""
        for depth, learnt in enumerate(self._learnt):
            for array, index, shape in learnt:
                if of_variables(index):
                    for e, size in zip(index, shape, strict=False):
                        self._bound(e, linear(size), depth)
                elif any(isinstance(n, (Load, VLoad)) for e in index for n in walk(e)):
                    continue
                self._inside[depth].add((array, index))
            learnt.clear()

    def _bound(self, e: Expr, size: Linear, depth: int) -> None:
        """Remember that 0 <= e < size."""
        form, below, above = _spread(e)
        terms, bounds = frozenset(form.terms), frozenset(size.terms)
        least, most = -form.const + below, size.const - 1 - form.const - above
        known = self._least[depth].get(terms)
        self._least[depth][terms] = least if known is None else max(known, least)
        known = self._most[depth].get((terms, bounds))
        self._most[depth][terms, bounds] = most if known is None else min(known, most)

    def _known_within(self, e: Expr, size: Linear) -> tuple[bool, bool]:
        """Whether accesses so far show that 0 <= e, and that e < size."""
        form, below, above = _spread(e)
        terms, bounds = frozenset(form.terms), frozenset(size.terms)
        starts = any(terms in known and known[terms] + form.const - below >= 0 for known in self._least)
        last = size.const - 1 - form.const - above
        return starts, any((terms, bounds) in known and known[terms, bounds] <= last for known in self._most)

    def safe(self, load: Load | VLoad, buffer: Buffer) -> bool:
        """Whether performing `load` here cannot leave the array."""
        self._look()
        key = (load.array, load.index)
        if any(key in known for known in self._inside):
            return True
        return all(self._within(i, n) for i, n in zip(load.index, buffer.shape, strict=True))

    def _within(self, index: Expr, size: Expr) -> bool:
        low, high = self.interval(index)
        starts = low is not None and low >= 0
        if isinstance(size, Const):
            ends = high is not None and high < size.value
        else:
            ends = isinstance(index, Var) and self._below.get(index.name) == size
        if not (starts and ends) and of_variables((index,)):
            first, last = self._known_within(index, linear(size))
            starts, ends = starts or first, ends or last
        return starts and ends

    def divisor(self, e: Expr) -> int:
        """A number that divides every value of an integer expression; 0 where that is always 0."""
        if isinstance(e, Const):
            return abs(int(e.value))
        if isinstance(e, Var):
            return self._divisors.get(e.name, 1)
        if isinstance(e, Binary) and e.op in ("+", "-"):
            return gcd(self.divisor(e.a), self.divisor(e.b))
        if isinstance(e, Binary) and e.op == "*":
            return self.divisor(e.a) * self.divisor(e.b)
        if isinstance(e, Unary) and e.op == "neg":
            return self.divisor(e.a)
        return 1

    def interval(self, e: Expr) -> Interval:
        """Bounds of an integer expression."""
        if isinstance(e, Const):
            return (int(e.value), int(e.value))
        if isinstance(e, Var):
            return self._bounds.get(e.name, UNKNOWN)
        if isinstance(e, Cast) and e.dtype.is_int and e.a.dtype.is_int and e.dtype.bits >= e.a.dtype.bits:
            return self.interval(e.a) if e.dtype.kind == e.a.dtype.kind else UNKNOWN
        if isinstance(e, Unary) and e.op == "neg":
            low, high = self.interval(e.a)
            return (None if high is None else -high, None if low is None else -low)
        if isinstance(e, Broadcast):
            return self.interval(e.a)
        if isinstance(e, Ramp):
            low, high = self.interval(e.base)
            span = e.stride * (e.count - 1)
            return (_add(low, min(0, span)), _add(high, max(0, span)))
        if isinstance(e, Binary) and e.dtype.is_int:
            return _combine(e.op, self.interval(e.a), self.interval(e.b))
        return UNKNOWN


def _spread(e: Expr) -> tuple[Linear, int, int]:
    """A subscript as a sum; a run of lanes as that of its base, and how far it reaches below and above."""
    if not isinstance(e, Ramp):
        return linear(e), 0, 0
    span = e.stride * (e.count - 1)
    return linear(e.base), max(0, -span), max(0, span)


def of_variables(index: tuple[Expr, ...]) -> bool:
    """Whether subscripts are sums of multiples of variables: the same element whatever is stored."""
    return all([isinstance(a, Var) for e in index for a, _ in linear(e.base if isinstance(e, Ramp) else e).terms])


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _combine(op: str, a: Interval, b: Interval) -> Interval:
    if op == "+":
        return (_add(a[0], b[0]), _add(a[1], b[1]))
    if op == "-":
        return (_add(a[0], None if b[1] is None else -b[1]), _add(a[1], None if b[0] is None else -b[0]))
    if op in ("min", "max"):
        return _extremum(op, a, b)
    constant = b[0] if b[0] is not None and b[0] == b[1] else None
    if op == "*" and None not in (*a, *b):
        ends = [x * y for x in a for y in b if x is not None and y is not None]
        return (min(ends), max(ends))
    if op == "*" and constant is not None and constant >= 0:
        return (None if a[0] is None else a[0] * constant, None if a[1] is None else a[1] * constant)
    if op == "//" and constant is not None and constant > 0:
        return (None if a[0] is None else a[0] // constant, None if a[1] is None else a[1] // constant)
    if op == "%" and constant is not None and constant > 0:
        if a[0] is not None and a[0] >= 0 and a[1] is not None and a[1] < constant:
            return a
        return (0, constant - 1)
    return UNKNOWN


def _extremum(op: str, a: Interval, b: Interval) -> Interval:
    pick = min if op == "min" else max
    lows, highs = [x for x in (a[0], b[0]) if x is not None], [x for x in (a[1], b[1]) if x is not None]
    if op == "min":
        return (pick(lows) if len(lows) == 2 else None, pick(highs) if highs else None)
    return (pick(lows) if lows else None, pick(highs) if len(highs) == 2 else None)
