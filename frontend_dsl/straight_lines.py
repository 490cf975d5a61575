"""Long runs of scalar assignments, and expressions nested deeply, become straight lines in one statement.

A scalar that is assigned once and read by one later assignment of the same block is a part of that assignment, as
long as what it is computed from stays as it is until then. Few such scalars are statements of their own, which
schedules can move about. A long run of them is one statement: nobody would take it to pieces, and what compilers ask
of pairs of statements would take long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Expr, Load, Select, StraightLine, Temp, loads, rewrite

from .builder import Block, Builder, Loop, Record, records_of

LONG = 32  # scalars of a run that becomes one statement
DEEP = 48  # levels of an expression that are not cut


def straighten(builder: Builder) -> None:
    """Rewrite the collected stores in place."""
    for record in records_of(builder.root):
        _cut(builder, record)
    facts = _Facts(builder)
    for block in _blocks(builder.root):
        _join(builder, block, facts)


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for item in block.items:
        if isinstance(item, Loop):
            yield from _blocks(item.body)


# ---- runs of scalars -----------------------------------------------------------------------


class _Facts:
    """Who writes and reads each local scalar."""

    def __init__(self, builder: Builder) -> None:
        self.writes: dict[str, int] = {}
        self.readers: dict[str, dict[int, Record]] = {}
        self.needed: set[str] = set()  # by a subscript, a bound or a condition: there they must be arrays
        seen: set[int] = set()
        for record in records_of(builder.root):
            self.writes[record.array.name] = self.writes.get(record.array.name, 0) + 1
            for load in loads(record.value):
                self.readers.setdefault(load.array, {})[id(record)] = record
                self.need(*load.index)
            self.need(*record.index)
            for loop in record.loops:
                if id(loop) not in seen:
                    seen.add(id(loop))
                    self.need(loop.lo, loop.hi)
            for guard in record.guards:
                if guard.condition is not None and id(guard.condition) not in seen:
                    seen.add(id(guard.condition))
                    saved = [] if guard.condition.saved is None else [guard.condition.saved]
                    self.need(guard.condition.whole, guard.condition.rest, *saved)

    def need(self, *exprs: Expr) -> None:
        self.needed.update(load.array for e in exprs for load in loads(e))

    def reader(self, record: Record) -> Record | None:
        """The one store that reads what this store writes, where it writes a scalar that nobody else does."""
        array = record.array
        found = self.readers.get(array.name, {})
        plain = array.kind == "local" and not array.shape and array.name not in self.needed
        return next(iter(found.values())) if plain and len(found) == 1 and self.writes[array.name] == 1 else None


def _join(builder: Builder, block: Block, facts: _Facts) -> None:
    """Make one statement of every long run of the block."""
    place = {id(item): k for k, item in enumerate(block.items)}
    if len(place) < LONG:
        return
    written: dict[str, list[int]] = {}
    for k, item in enumerate(block.items):
        for array in {r.array.name for r in records_of(item)}:
            written.setdefault(array, []).append(k)
    end: dict[int, int] = {}  # place of a store -> where its value is computed in the end
    for k in range(len(block.items) - 1, -1, -1):
        record = block.items[k]
        reader = facts.reader(record) if isinstance(record, Record) else None
        if not isinstance(record, Record) or reader is None:
            continue
        at = place.get(id(reader), -1)
        if at <= k or reader.guards != record.guards:
            continue
        at = end.get(at, at)
        if all(_unwritten(written.get(load.array, []), k, at) for load in loads(record.value)):
            end[k] = at
    runs: dict[int, list[int]] = {}
    for k in sorted(end):
        runs.setdefault(end[k], []).append(k)
    gone: set[int] = set()
    for last, parts in runs.items():
        if len(parts) >= LONG:
            _write(block.items, last, parts)
            gone.update(parts)
    if gone:
        block.items[:] = [item for k, item in enumerate(block.items) if k not in gone]


def _unwritten(places: list[int], first: int, last: int) -> bool:
    """Whether none of these places is between two others."""
    k = bisect_right(places, first)
    return k == len(places) or places[k] >= last


def _write(items: list[Loop | Record], last: int, parts: list[int]) -> None:
    """The stores at `parts` become names in the value of the one at `last`."""
    final = items[last]
    assert isinstance(final, Record)
    members = [r for r in (items[k] for k in parts) if isinstance(r, Record)]
    temps = {r.array.name: Temp(r.array.name, r.array.dtype) for r in members}

    def named(e: Expr) -> Expr:
        return temps.get(e.array, e) if isinstance(e, Load) else e

    names: list[str] = []
    values: list[Expr] = []
    for r in members:
        value = rewrite(r.value, named)
        if isinstance(value, StraightLine):
            names += value.names
            values += value.values
            value = value.result
        names.append(r.array.name)
        values.append(value)

    def line(e: Expr) -> Expr:
        e = rewrite(e, named)
        if isinstance(e, StraightLine):
            return StraightLine((*names, *e.names), (*values, *e.values), e.result, e.dtype)
        return StraightLine(tuple(names), tuple(values), e, e.dtype)

    _in_value(final, line)


def _in_value(record: Record, change: Callable[[Expr], Expr]) -> None:
    """Change the value of a store; of an update `A[i] = A[i] + e` only `e`, so that it stays one."""
    value = record.value
    if isinstance(value, Binary) and value.op not in ("and", "or"):
        here = Load(record.array.name, record.index, value.dtype)
        for own, other, swapped in ((value.a, value.b, False), (value.b, value.a, True)):
            if own == here and not any(load.array == record.array.name for load in loads(other)):
                new = change(other)
                record.value = value.with_children((new, own) if swapped else (own, new))
                return
    record.value = change(value)


# ---- deep expressions ----------------------------------------------------------------------


def _cut(builder: Builder, record: Record) -> None:
    """Name parts of a deep value, so that no walk over it goes deep."""
    if _height(record.value) > DEEP:
        _in_value(record, lambda e: _flat(builder, e))


def _height(e: Expr) -> int:
    """Levels of an expression."""
    level, here = 0, [e]
    while here:
        level += 1
        here = list({id(c): c for x in here for c in x.children()}.values())
    return level


def _flat(builder: Builder, e: Expr) -> Expr:
    """`e` with a name for each part that has `DEEP` levels. What is not always computed stays as it is, and so do
    subscripts and conditions."""
    names: list[str] = []
    values: list[Expr] = []
    done: dict[int, tuple[Expr, int]] = {}
    waiting: list[tuple[Expr, bool]] = [(e, False)]
    while waiting:
        node, ready = waiting.pop()
        if id(node) in done:
            continue
        eager = node.children()
        if isinstance(node, Load):
            eager = ()
        elif isinstance(node, Select):
            eager = (node.cond,)
        elif isinstance(node, Binary) and node.op in ("and", "or"):
            eager = (node.a,)
        if not ready:
            waiting.append((node, True))
            waiting.extend((c, False) for c in reversed(eager))
            continue
        new = tuple(done[id(c)][0] if id(c) in done else c for c in node.children()) if eager else node.children()
        level = 1 + max([done[id(c)][1] for c in eager], default=0)
        made = node if all(a is b for a, b in zip(new, node.children())) else node.with_children(new)
        if level >= DEEP and node.dtype != bool_ and node is not e:
            names.append(builder.unique("part"))
            values.append(made)
            made, level = Temp(names[-1], node.dtype), 0
        done[id(node)] = made, level
    return StraightLine(tuple(names), tuple(values), done[id(e)][0], e.dtype) if names else e
