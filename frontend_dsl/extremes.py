"""Searches for the place of a largest or smallest value, as two reductions.

`if v > x: x = v; place = p` carries `x` and `place` from one iteration to the next, and no part of it is a reduction.
The same is the largest value first, `x = max(x, v)`, then the first iteration that has it, `found = min(found, t if v
== x else none)`, and, where `x` has grown, `place = p` of that iteration. Either can be split among lanes and threads.
With `if v >= x` it is the last one that has it, and `place = p` where there is one.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.poly.dtypes import DType, bool_, i32, i64
from polyc.poly.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Span,
    Unary,
    Var,
    const_int,
    loads,
    substitute,
)
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass

from .builder import Block, Builder, Condition, Guard, Loop, Record
from .fold import add, sub, tidy
from .values import ArrayValue, cast

EXTREMES = {">": "max", "<": "min"}
"""`v > x` before `x = v`: what `x` becomes."""
WITH_EQUAL = {">=": "max", "<=": "min"}
"""The same, where the last of equal values counts."""
_NEGATED = {">": "<=", "<": ">=", ">=": "<", "<=": ">"}


def extreme(cond: Expr, value: Expr, here: Load, equal: bool = False) -> str | None:
    """`max` or `min` where `here` becomes `value` if `cond` holds, and is the one that Python's would give; with
    `equal` also where it may be another zero than that: `x = v if v >= x` is `max(x, v)` but for its sign."""
    cond = _positive(cond)
    known = EXTREMES | WITH_EQUAL if equal else EXTREMES
    if not isinstance(cond, Binary) or cond.op not in known or value.dtype == bool_:
        return None
    if (cond.a, cond.b) == (value, here):
        return known[cond.op]
    if (cond.a, cond.b) == (here, value):
        return known[_TURNED[cond.op]]
    return None


def _positive(cond: Expr) -> Expr:
    """`not a < b` of integers as `a >= b`; numbers that are none make neither of floats hold."""
    if isinstance(cond, Unary) and cond.op == "not" and isinstance(cond.a, Binary) and cond.a.op in _NEGATED:
        return replace(cond.a, op=_NEGATED[cond.a.op]) if cond.a.a.dtype.is_int else cond
    return cond


def separate_places(builder: Builder, reassociate: bool) -> None:
    """Rewrite such searches in the collected stores; those for the last of equal floats only where reductions may be
    reassociated: which of two zeros `x` is does not count then."""
    _visit(builder, builder.root, reassociate)


def _visit(builder: Builder, block: Block, reassociate: bool) -> None:
    items: list[Loop | Record] = []
    for item in block.items:
        whole = item
        if isinstance(item, Loop):
            item = _tightened(item)
        search = _search(builder, item, reassociate) if isinstance(item, Loop) else None
        before = items[-1] if items else None
        spelled = _by_place(builder, before, item) if search is None and isinstance(item, Loop) else None
        if spelled is not None:
            search = _search(builder, spelled[1], reassociate)
            items += [spelled[0]] if search is not None else []
        if search is not None:
            items += _Parts(builder, search).items()
            continue
        item = whole
        items.append(item)
        if isinstance(item, Loop):
            _visit(builder, item.body, reassociate)
    block.items[:] = items


def _tightened(loop: Loop) -> Loop:
    """The loop without a condition on its iterator that all of its stores are under: its bounds say it."""
    stores = [r for r in loop.body.items if isinstance(r, Record)]
    guards = [r.guards[len(loop.guards)] for r in stores if len(r.guards) > len(loop.guards)]
    if abs(loop.step) != 1 or loop.dynamic or loop.kind or not stores or len(guards) != len(loop.body.items):
        return loop
    bound = _bound(loop, guards[0])
    if bound is None or any(g != guards[0] for g in guards):
        return loop
    new = replace(loop, lo=bound[0], hi=bound[1], body=Block())
    for r in stores:
        kept = (*r.guards[: len(loop.guards)], *r.guards[len(loop.guards) + 1 :])
        new.body.items.append(replace(r, loops=(*r.loops[:-1], new), guards=kept))
    return _tightened(new)


def _bound(loop: Loop, guard: Guard) -> tuple[Expr, Expr] | None:
    """The bounds of a loop where a condition holds; None if it is none on the iterator alone."""
    one, up = const_int(1), loop.step > 0
    lo, hi = (loop.lo, loop.hi) if up else (add(loop.hi, one), add(loop.lo, one))
    if guard.condition is not None or guard.affine is None:
        return None
    waiting = [guard.affine]
    while waiting:
        test = waiting.pop()
        if isinstance(test, Binary) and test.op == "and":
            waiting += [test.a, test.b]
            continue
        if not isinstance(test, Binary) or test.op not in _TURNED:
            return None
        op, a, b = test.op, test.a, test.b
        if b == Var(loop.name, i64):
            op, a, b = _TURNED[op], b, a
        if a != Var(loop.name, i64) or loop.name in _names(b):
            return None
        b = add(b, one) if op in ("<=", ">") else b
        lo = tidy(Binary("max", lo, b, i64)) if op in (">", ">=") else lo
        hi = tidy(Binary("min", hi, b, i64)) if op in ("<", "<=") else hi
    return (lo, hi) if up else (sub(hi, one), sub(lo, one))


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class _Search:
    """A nest that searches: its loops, the store to `x`, what it becomes, whether the last of equal values counts, the
    other stores under the condition; `index` and `extents` number its iterations."""

    loops: tuple[Loop, ...]
    best: Record
    op: str
    last: bool
    places: tuple[Record, ...]
    index: tuple[Expr, ...]
    extents: tuple[Expr, ...]

    @property
    def outer(self) -> Loop:
        return self.loops[0]

    @property
    def around(self) -> tuple[Loop, ...]:
        """The loops around the nest."""
        return self.best.loops[: -len(self.loops)]


def _search(builder: Builder, outer: Loop, reassociate: bool) -> _Search | None:
    """What a nest searches for; None if it does something else, or more."""
    loops = [outer]
    while len(loops[-1].body.items) == 1 and isinstance(inner := loops[-1].body.items[0], Loop):
        loops.append(inner)
    body = loops[-1].body.items
    if len(body) < 2 or any(isinstance(r, Loop) for r in body) or any(loop.dynamic or loop.kind for loop in loops):
        return None
    records = [r for r in body if isinstance(r, Record)]
    condition, stores = _condition(outer, records)
    found = None if condition is None or len(stores) < 2 else _best(condition, stores)
    if found is None:
        return None
    best, op, last = found
    if last and best.value.dtype.is_float and not reassociate:
        return None
    places = tuple(r for r in stores if r is not best)
    written, moving = {r.array.name for r in records}, {loop.name for loop in loops}
    if len(written) != len(body) or any(_names(e) & moving for r in stores for e in r.index):
        return None
    if any(load.array in written for load in loads(best.value)) or any(True for r in places for _ in loads(r.value)):
        return None
    index, extents = _numbering(builder, best.loops)
    if len(index) != len(best.loops):
        return None
    return _Search(tuple(loops), best, op, last, places, index[-len(loops) :], extents[-len(loops) :])


def _by_place(builder: Builder, before: Loop | Record | None, loop: Loop) -> tuple[Record, Loop] | None:
    """A search that keeps the place alone, `b = 0; j: if x[j] > x[b]: b = j`, with the value at that place beside it:
    what is to be stored before the loop and the loop. None where it is no such search."""
    if len(loop.body.items) != 1 or loop.dynamic or loop.kind:
        return None
    (place,) = loop.body.items
    if not isinstance(place, Record) or len(place.guards) != len(loop.guards) + 1 or place.guards[:-1] != loop.guards:
        return None
    condition = place.guards[-1].condition
    compared = _positive(condition.rest) if condition is not None and condition.saved is None else None
    if not isinstance(compared, Binary) or compared.op not in _TURNED or not place.guards[-1].holds:
        return None
    kept = Load(place.array.name, place.index, place.value.dtype)
    read = next((r for r, k in ((compared.a, compared.b), (compared.b, compared.a)) if _moved(r, k, place, kept)), None)
    if not isinstance(read, Load):
        return None
    around, span = place.loops[:-1], place.span
    best = _local(builder, f"{read.array}_best", read.dtype, around, span)
    held = _local(builder, "cond", bool_, place.loops, span)
    value = Load(best.name, best.prefix, best.dtype)
    a, b = (e if e == read else value for e in (compared.a, compared.b))
    grown = Binary(compared.op, a, b, bool_)
    under = (*loop.guards, Guard(condition=Condition(grown, grown, Load(held.name, held.prefix, bool_))))
    first, entered = _first(before, place, loop, compared.b if read == compared.a else compared.a)
    new = replace(loop, body=Block())
    loops = (*around, new)
    new.body.items[:] = [
        Record(loops, loop.guards, held, held.prefix, grown, span),
        Record(loops, under, best, best.prefix, read, span),
        replace(place, loops=loops, guards=under),
    ]
    return Record(around, entered, best, best.prefix, first, span), new


def _first(before: Loop | Record | None, place: Record, loop: Loop, there: Expr) -> tuple[Expr, tuple[Guard, ...]]:
    """The value that a search by place begins with, and where it is read: at the place that is kept then, if there is
    an iteration; an array has a first element, whatever its size."""
    starts = isinstance(before, Record) and (before.array, before.index, before.guards) == (
        place.array, place.index, loop.guards,
    )  # fmt: skip
    assert isinstance(there, Load)
    if isinstance(before, Record) and starts and _plain(before.value) == const_int(0):
        kept = Load(place.array.name, place.index, place.value.dtype)
        return replace(there, index=tuple(const_int(0) if _plain(e) == kept else e for e in there.index)), loop.guards
    a, b = (loop.lo, loop.hi) if loop.step > 0 else (loop.hi, loop.lo)
    return there, (*loop.guards, Guard(affine=Binary("<", a, b, bool_)))


def _local(builder: Builder, name: str, dtype: DType, loops: tuple[Loop, ...], span: Span | None) -> ArrayValue:
    """A local scalar of each iteration of the loops."""
    outer, builder.loops = builder.loops, loops
    try:
        prefix, extents = builder.expansion()
        return builder.add_array(ArrayValue(name, dtype, (), "local", span, prefix, extents))
    finally:
        builder.loops = outer


def _moved(read: Expr, other: Expr, place: Record, kept: Load) -> bool:
    """Whether one expression reads an array in this iteration and the other one reads it at the place that is kept."""
    if not isinstance(read, Load) or not isinstance(other, Load) or read.array != other.array:
        return False
    if any(True for e in read.index for _ in loads(e)) or not _one_differs(read, other):
        return False
    return all(
        a == b or (_plain(a) == _plain(place.value) and _plain(b) == kept)
        for a, b in zip(read.index, other.index, strict=True)
    )


def _one_differs(a: Load, b: Load) -> bool:
    """Whether two reads of an array have different subscripts in one dimension, and in one only."""
    return sum(x != y for x, y in zip(a.index, b.index, strict=True)) == 1


def _plain(e: Expr) -> Expr:
    """Without a conversion between integers that hold any subscript: narrower ones would cut it."""
    while isinstance(e, Cast) and all(t.is_int and t.bits >= i32.bits for t in (e.dtype, e.a.dtype)):
        e = e.a
    return const_int(int(e.value)) if isinstance(e, Const) and e.dtype.is_int else e


def _under(r: Record, saved: Record) -> bool:
    """Whether the store happens where the saved condition holds, and only there."""
    if len(r.guards) != len(saved.guards) + 1 or r.guards[:-1] != saved.guards:
        return False
    last = r.guards[-1]
    return last.condition is not None and last.holds and _same(last.condition.saved, saved)


def _same(load: Load | None, r: Record) -> bool:
    return load is not None and (load.array, load.index) == (r.array.name, r.index)


def _condition(outer: Loop, records: list[Record]) -> tuple[Expr | None, list[Record]]:
    """The condition that all stores are under, and the stores: it is saved before them, or none but the last of them
    changes it."""
    saved, *stores = records
    if saved.guards == outer.guards:
        return (saved.value if all(_under(r, saved) for r in stores) else None), stores
    if not saved.guards or saved.guards[:-1] != outer.guards:
        return None, []
    last = saved.guards[-1]
    condition = last.condition
    if condition is None or condition.saved is not None or condition.rest != condition.whole or not last.holds:
        return None, []
    return (condition.rest if all(r.guards == saved.guards for r in stores) else None), records


def _best(condition: Expr, stores: list[Record]) -> tuple[Record, str, bool] | None:
    """The store of the value that the condition compares, what it makes of the element, and whether the last of equal
    values counts."""
    condition = _positive(condition)
    for r in stores:
        op = extreme(condition, r.value, Load(r.array.name, r.index, r.value.dtype), equal=True)
        if op is not None and _exact(r.value):
            return r, op, isinstance(condition, Binary) and condition.op in WITH_EQUAL
    return None


def _exact(e: Expr) -> bool:
    """Whether a value has the same bits each time that it is computed: multiply-adds may be fused in one place only."""
    if isinstance(e, Load) or not e.dtype.is_float:
        return True
    return (isinstance(e, Unary) or (isinstance(e, Call) and e.fn == "abs")) and all(_exact(c) for c in e.children())


def _numbering(builder: Builder, loops: tuple[Loop, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    outer, builder.loops = builder.loops, loops
    try:
        return builder.expansion()
    finally:
        builder.loops = outer


def _in_order(loop: Loop, at: Expr, extent: Expr) -> Expr:
    """Which iteration of a loop has a place in its range, or the other way round: the first one of a loop that goes
    down has the last one."""
    return sub(sub(extent, const_int(1)), at) if loop.step < 0 and not loop.counts else at


def _names(e: Expr) -> set[str]:
    return {x.name for x in walk_expr(e) if isinstance(x, Var)}


class _Parts:
    """What takes the place of a search."""

    def __init__(self, builder: Builder, search: _Search) -> None:
        self.builder = builder
        self.search = search
        best = search.best
        self.x = Load(best.array.name, best.index, best.value.dtype)
        count: Expr = const_int(1)
        for extent in search.extents:
            count = tidy(Binary("*", count, extent, i64))
        small = isinstance(count, Const) and int(count.value) < 2**31
        self.number = i32 if small else i64  # of an iteration
        self.none = Const(-1 if search.last else 2**31 - 1 if small else 2**63 - 1, self.number)

    def items(self) -> list[Loop | Record]:
        """The value before, the nest that reduces, the nest that finds, and what depends on the iteration."""
        s, best = self.search, self.search.best
        start = self._local(f"{best.array.name}_start", self.x.dtype)
        found = self._local(f"{best.array.name}_found", self.number)
        before = self._record(s.around, start, self.x)
        none = self._record(s.around, found, self.none)
        inner = s.loops[-1].body
        guards = s.outer.guards
        inner.items[:] = [replace(best, guards=guards, value=Binary(s.op, self.x, best.value, self.x.dtype))]
        compare = ">" if s.op == "max" else "<"
        grown = Binary(compare, self.x, Load(start.name, start.prefix, start.dtype), bool_)
        if s.last:
            grown = Binary("!=", Load(found.name, found.prefix, found.dtype), self.none, bool_)
        under = (*guards, Guard(condition=Condition(grown, grown)))
        values = self._values(Load(found.name, found.prefix, found.dtype))
        after = [replace(r, loops=s.around, guards=under, value=substitute(r.value, values)) for r in s.places]
        return [*([] if s.last else [before]), s.outer, none, self._finding(found), *after]

    def _local(self, name: str, dtype: DType) -> ArrayValue:
        """A local scalar around the nest."""
        return _local(self.builder, name, dtype, self.search.around, self.search.best.span)

    def _record(self, loops: tuple[Loop, ...], array: ArrayValue, value: Expr) -> Record:
        return Record(loops, self.search.outer.guards, array, array.prefix, value, self.search.best.span)

    def _finding(self, found: ArrayValue) -> Loop:
        """The nest once more: the first iteration with the value, or the last one."""
        s = self.search
        renamed = {loop.name: Var(self.builder.unique(loop.name)) for loop in s.loops}
        number: Expr = const_int(0)
        for loop, index, extent in zip(s.loops, s.index, s.extents, strict=True):
            at = _in_order(loop, substitute(index, renamed), extent)
            number = add(tidy(Binary("*", number, extent, i64)), at)
        here = Load(found.name, found.prefix, found.dtype)
        equal = Binary("==", substitute(s.best.value, renamed), self.x, bool_)
        first = Select(equal, cast(number, self.number), self.none, self.number)
        loops: list[Loop] = []
        for loop in s.loops:
            lo, hi = substitute(loop.lo, renamed), substitute(loop.hi, renamed)
            loops.append(replace(loop, name=renamed[loop.name].name, body=Block(), lo=lo, hi=hi))
        for a, b in zip(loops, loops[1:], strict=False):
            a.body.items.append(b)
        value = Binary("max" if s.last else "min", here, first, self.number)
        loops[-1].body.items.append(self._record((*s.around, *loops), found, value))
        return loops[0]

    def _values(self, found: Load) -> dict[str, Expr]:
        """The nest's variables in the iteration found."""
        s, rest, values = self.search, cast(found, i64), {}
        for loop, index, extent in reversed(list(zip(s.loops, s.index, s.extents, strict=True))):
            last = loop is s.outer
            own = _in_order(loop, rest if last else Binary("%", rest, extent, i64), extent)
            values[loop.name] = add(sub(Var(loop.name), index), own)
            rest = rest if last else Binary("//", rest, extent, i64)
        return values
