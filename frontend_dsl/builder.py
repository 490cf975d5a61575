"""Collects the program's loops and stores in textual order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Span, Var, const_int, loads, variables
from polyc.poly.forms.affine import NotAffine, is_affine, set_space, to_set
from polyc.poly.records import dataclass

from .fold import Unbounded, add, interval, sub, tidy
from .values import ArrayValue, negate


@dataclass(eq=False)
class Loop:
    """`for name in range(lo, hi, step)`; `dynamic`: a bound reads arrays.

    The iterator of a loop with steps of 2 and more, up or down, counts its iterations from 0: domains have no
    remainders then, which isl is slow on, and blocks of a loop are blocks of iterations.
    """

    name: str
    lo: Expr
    hi: Expr
    step: int
    dynamic: bool
    body: Block
    span: Span | None
    kind: str = ""  # how it is to run, where the program says it
    factor: int | None = None
    guards: tuple[Guard, ...] = ()  # around it

    @property
    def counts(self) -> bool:
        """Whether the iterator is the number of the iteration, not the value of the loop's variable."""
        return abs(self.step) > 1

    @property
    def value(self) -> Expr:
        """The value of the loop's variable, of its iterator."""
        iterator = Var(self.name, i64)
        return add(self.lo, Binary("*", const_int(self.step), iterator, i64)) if self.counts else iterator


@dataclass(eq=False)
class Condition:
    """A data-dependent `if`. `rest` is `whole` without the part that restricts the domain."""

    whole: Expr
    rest: Expr
    saved: Load | None = None

    def then(self) -> Expr:
        """What has to hold in its first branch: the saved value, or what the domain does not say yet."""
        return self.saved or self.rest

    def otherwise(self) -> Expr:
        """What has to hold in its `else`: the saved value or the whole condition, negated."""
        return negate(self.saved or self.whole)


@dataclass(frozen=True, eq=False)
class Guard:
    """What an `if` around a store demands: affine (`affine`) or by data (`condition`, `holds`)."""

    affine: Expr | None = None
    condition: Condition | None = None
    holds: bool = True


def by_data(guards: tuple[Guard, ...]) -> Expr | None:
    """The data-dependent conditions, outermost first, joined by `and`."""
    parts = (g.condition.then() if g.holds else g.condition.otherwise() for g in guards if g.condition)
    out: Expr | None = None
    for part in dict.fromkeys(parts):
        out = part if out is None else Binary("and", out, part, bool_)
    return out


@dataclass(eq=False)
class Record:
    """One store and what is around it."""

    loops: tuple[Loop, ...]
    guards: tuple[Guard, ...]
    array: ArrayValue
    index: tuple[Expr, ...]
    value: Expr
    span: Span | None

    def predicate(self) -> Expr | None:
        """The data-dependent conditions around the store."""
        return by_data(self.guards)


@dataclass(eq=False)
class Block:
    """Loops and stores one after another."""

    items: list[Loop | Record] = field(default_factory=list)


ONE = const_int(1)


class Builder:
    """The program being written: arrays, the nest of loops and guards, and the stores."""

    def __init__(self, params: tuple[str, ...]) -> None:
        self.params = params
        self.ranges: dict[str, tuple[int, int | None]] = {}  # of parameters; otherwise from 1 on
        self.facts: dict[Expr, None] = {}  # of several parameters: what is never negative
        self.arrays: dict[str, ArrayValue] = {}
        self.root = Block()
        self.block = self.root
        self.loops: tuple[Loop, ...] = ()
        self.guards: tuple[Guard, ...] = ()
        self.notes: list[str] = []
        self._names: set[str] = set(params)

    # ---- names and arrays ------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """`name` as a C identifier that nothing else in the program has."""
        base = "".join(c if c.isascii() else f"u{ord(c):x}" for c in name)
        base = re.sub(r"\W", "_", base)
        if base in _RESERVED or not base or base[0].isdigit():
            base += "_"
        found, n = base, 0
        while found in self._names:
            n += 1
            found = f"{base}_{n}"
        self._names.add(found)
        return found

    def add_array(self, array: ArrayValue) -> ArrayValue:
        """Declare it under a unique name."""
        array.name = self.unique(array.name)
        array.scope = self.loops
        self.arrays[array.name] = array
        return array

    def expansion(self) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """Subscripts and extents that make something private to each iteration around here.

        One dimension for each affine loop, over the bounding box of the nest; loops with
        data-dependent bounds give none.
        """
        ranges: dict[str, tuple[Expr, Expr] | None] = {}
        index: list[Expr] = []
        extents: list[Expr] = []
        for loop in self.loops:
            ranges[loop.name] = None
            if loop.dynamic:
                continue
            try:
                if loop.counts:
                    gap = sub(loop.hi, loop.lo) if loop.step > 0 else sub(loop.lo, loop.hi)
                    last = tidy(Binary("//", sub(interval(gap, ranges)[1], ONE), const_int(abs(loop.step)), i64))
                    ranges[loop.name] = const_int(0), last
                    index.append(Var(loop.name))
                    extents.append(add(last, ONE))
                    continue
                first, last = (loop.lo, loop.hi) if loop.step > 0 else (add(loop.hi, ONE), add(loop.lo, ONE))
                lo, hi = interval(first, ranges)[0], interval(sub(last, ONE), ranges)[1]
            except Unbounded:
                continue
            ranges[loop.name] = lo, hi
            index.append(sub(Var(loop.name), lo))
            extents.append(add(sub(hi, lo), ONE))
        return tuple(index), tuple(extents)

    # ---- loops, guards, stores -------------------------------------------------------------

    @contextmanager
    def loop(
        self, name: str, lo: Expr, hi: Expr, step: int, span: Span | None, dynamic: bool = False,
        kind: str = "", factor: int | None = None,
    ) -> Iterator[Loop]:  # fmt: skip
        """Inside, stores are in this loop. `name` must be unique."""
        new = Loop(name, lo, hi, step, dynamic, Block(), span, kind, factor, self.guards)
        self.block.items.append(new)
        outer = self.block, self.loops
        self.block, self.loops = new.body, (*self.loops, new)
        try:
            yield new
        finally:
            self.block, self.loops = outer

    @contextmanager
    def guarded(self, guards: tuple[Guard, ...]) -> Iterator[None]:
        """Inside, stores happen only where the guards hold."""
        outer = self.guards
        self.guards = (*outer, *guards)
        try:
            yield
        finally:
            self.guards = outer

    def store(self, array: ArrayValue, index: tuple[Expr, ...], value: Expr, span: Span | None) -> Record:
        """Append `array[index] = value`; `index` without the expansion's prefix."""
        record = Record(self.loops, self.guards, array, (*array.prefix, *index), value, span)
        self.block.items.append(record)
        return record

    def mark(self) -> tuple[Block, int]:
        """A place in the text, for `insert` and `records_since`."""
        return self.block, len(self.block.items)

    def records_since(self, mark: tuple[Block, int]) -> list[Record]:
        """All stores written after `mark`, in textual order."""
        return [r for item in mark[0].items[mark[1] :] for r in records_of(item)]

    def is_affine(self, condition: Expr) -> bool:
        """Whether a condition is affine in the loop variables here and the sizes."""
        space = set_space("S", [v.name for v in self.loops], self.params)
        try:
            to_set(condition, space)
        except NotAffine:
            return False
        return True

    def split(self, condition: Expr) -> tuple[list[Expr], Expr | None]:
        """Affine conjuncts and the rest of a condition."""
        if self.is_affine(condition):
            return [condition], None
        if isinstance(condition, Binary) and condition.op == "and":
            a, b = self.split(condition.a), self.split(condition.b)
            rest = [r for r in (a[1], b[1]) if r is not None]
            return a[0] + b[0], rest[0] if len(rest) == 1 else Binary("and", rest[0], rest[1], bool_)
        return [], condition

    def needs_saving(self, condition: Condition, mark: tuple[Block, int], used_later: bool = False) -> bool:
        """Whether a store under the condition changes what a later evaluation of it reads."""
        reads = {load.array for load in loads(condition.whole)}
        stores = self.records_since(mark)
        depth = len(self.loops)
        return any(
            r.array.name in reads and (used_later or r is not stores[-1] or len(r.loops) > depth) for r in stores
        )

    def loses_an_error(self, condition: Condition, mark: tuple[Block, int]) -> bool:
        """Whether the condition may leave an array, and not all that come to it evaluate it: where an affine condition
        or an empty loop leaves the stores under it out. An access outside is an error also where nothing follows."""
        if not any(map(self.may_leave, loads(condition.rest))):
            return False
        if any(self.is_affine(e) for e in _after_data(self, condition.whole)):
            return True
        return not self.always_reached(mark, 0, self.split(condition.whole)[0])

    def always_reached(self, mark: tuple[Block, int], loops: int, known: Sequence[Expr] = ()) -> bool:
        """Whether a store after `mark` is come to, or asks a data-dependent condition, in every iteration of the loops
        here: under no affine condition but the `known` ones, and in no loop that may be empty, from `loops` inner ones
        on."""
        depth, outer = len(self.loops) + loops, len(self.guards)
        return any(
            all(g.affine is None or g.affine in known for g in r.guards[outer:]) and all(map(_runs, r.loops[depth:]))
            for r in self.records_since(mark)
        )

    def may_leave(self, load: Load) -> bool:
        """Whether data decide if an access here stays inside, as far as the subscripts and the loops around tell."""
        space = set_space("S", [v.name for v in self.loops], self.params)
        open_ended = {loop.name for loop in self.loops if loop.dynamic}
        array = self.arrays[load.array]
        own = load.index[len(load.index) - len(array.shape) :]  # without those of the iterations that a scalar is of
        return any(not is_affine(e, space) or variables(e) & open_ended for e in own)

    def save(self, condition: Condition, mark: tuple[Block, int], span: Span | None) -> None:
        """Evaluate the condition once, at `mark`, into a local scalar that the guards then read."""
        prefix, extents = self.expansion()
        array = self.add_array(ArrayValue("cond", bool_, (), "local", span, prefix, extents))
        mark[0].items.insert(mark[1], Record(self.loops, self.guards, array, prefix, condition.whole, span))
        condition.saved = Load(array.name, prefix, bool_, span)


def _after_data(builder: Builder, condition: Expr) -> list[Expr]:
    """The conjuncts that follow one which data decide."""
    if isinstance(condition, Binary) and condition.op == "and":
        a, b = condition.a, condition.b
        return [*_after_data(builder, a), *(_after_data(builder, b) if builder.is_affine(a) else conjuncts(b))]
    return []


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a conjunction, in order."""
    if isinstance(condition, Binary) and condition.op == "and":
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [condition]


def _runs(loop: Loop) -> bool:
    """Whether a loop has at least one iteration for all sizes, as one from 0 to a size has."""
    if loop.dynamic or loop.lo != const_int(0) or loop.guards:
        return False
    return isinstance(loop.hi, Var) or (isinstance(loop.hi, Const) and int(loop.hi.value) > 0)


def loops_of(block: Block) -> Iterator[Loop]:
    """All loops of a block, outermost and textually first first."""
    for item in block.items:
        if isinstance(item, Loop):
            yield item
            yield from loops_of(item.body)


def records_of(item: Loop | Record | Block) -> Iterator[Record]:
    """All stores in a piece of the program, in textual order."""
    if isinstance(item, Record):
        yield item
        return
    for child in (item.body if isinstance(item, Loop) else item).items:
        yield from records_of(child)


# C keywords and names that the emitters' languages take.
_RESERVED = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int
    long register restrict return short signed sizeof static struct switch typedef union unsigned void
    volatile while asm bool true false class template this new delete main kernel global local
    private constant half""".split()
)
