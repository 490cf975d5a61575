"""Induction variables: scalars that every iteration changes by the same amount, as functions of the loops around them.

    k = 0                                  for i in range(N):
    for i in range(N):                       for j in range(8):
      for j in range(8):            ->         B[8 * i + j] = A[i, j]
        B[k] = A[i, j]
        k += 1

(Wolfe, "Beyond induction variables", PLDI 1992.) Integers always; floats that a constant is added to, or a constant
number of times multiplied with, under `fast_math` only, as rounding differs. What a condition decides stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, loads, rewrite
from polyc.poly.records import dataclass

from .builder import Block, Builder, Loop, Record, records_of
from .fold import add, sub, tidy
from .values import ArrayValue, cast

MOST_ROUNDS = 8  # of scalars that depend on each other


def count_inductions(builder: Builder, fast_math: bool) -> None:
    """Rewrite such scalars in the collected stores."""
    for _ in range(MOST_ROUNDS):
        if not any(_replaced(builder, x, writes) for x, writes in _candidates(builder, fast_math)):
            return


def _candidates(builder: Builder, fast_math: bool) -> list[tuple[ArrayValue, list[Record]]]:
    """Local scalars whose later stores are in loops that the first one is not in, or that have one store."""
    written: dict[int, tuple[ArrayValue, list[Record]]] = {}
    for r in records_of(builder.root):
        written.setdefault(id(r.array), (r.array, []))[1].append(r)
    found = []
    for x, (start, *changes) in written.values():
        counted = x.dtype == i64 or (x.dtype.is_float and fast_math and bool(changes))
        pure = x.kind == "local" and not x.shape and next(loads(start.value), None) is None
        private = start.loops == x.scope and all(r.index == x.prefix for r in (start, *changes))
        if counted and pure and private and all(len(r.loops) > len(start.loops) for r in changes):
            found.append((x, [start, *changes]))
    return found


def _replaced(builder: Builder, x: ArrayValue, writes: list[Record]) -> bool:
    """Whether the scalar has gone."""
    start, *changes = writes
    if _decides(builder, x.name):
        return False
    steps = {id(r): step for r in changes if (step := _step(builder, r)) is not None}
    if len(steps) < len(changes) or len({op for op, _ in steps.values()}) > 1:
        return False
    if any(not _unconditional(r, start, changes, builder) for r in changes):
        return False
    walk = _Walk(x, start, steps)
    try:
        values = {id(r): walk.value(position) for r, position in walk.readers(builder.root)}
    except _NoClosedForm:
        return False
    _rewrite(builder.root, x, values, {id(r) for r in writes})
    return True


def _decides(builder: Builder, name: str) -> bool:
    """Whether a condition or a bound reads the scalar."""
    for r in records_of(builder.root):
        exprs = [e for loop in r.loops for e in (loop.lo, loop.hi)]
        for c in (g.condition for g in r.guards if g.condition is not None):
            exprs += [c.whole, c.rest, *([] if c.saved is None else [c.saved])]
        exprs += [g.affine for g in r.guards if g.affine is not None]
        if any(load.array == name for e in exprs for load in loads(e)):
            return True
    return False


Step = tuple[str, Const]


def _step(builder: Builder, r: Record) -> Step | None:
    """The operator and the constant with which a store changes the scalar."""
    x = Load(r.array.name, r.index, r.value.dtype)
    value = _with_copies(builder, r, x)
    if not isinstance(value, Binary):
        return None
    if value.dtype == i64 and value.op in ("+", "-"):
        apart = sub(value, x)
        return ("+", apart) if isinstance(apart, Const) else None
    a, b = (value.b, value.a) if value.b == x and value.op in ("+", "*") else (value.a, value.b)
    if a != x or not isinstance(b, Const) or not value.dtype.is_float or value.op not in ("+", "-", "*"):
        return None
    return ("+", Const(-b.value, b.dtype)) if value.op == "-" else (value.op, b)


def _with_copies(builder: Builder, r: Record, x: Load) -> Expr:
    """The value with other scalars as what the same iteration has made them of the scalar (`k = j + 1; j = k + 1`)."""
    block = next(b for b in _blocks(builder.root) if any(item is r for item in b.items))
    place = next(k for k, item in enumerate(block.items) if item is r)
    known: dict[Expr, Expr] = {}
    for item in block.items[:place]:
        if isinstance(item, Loop) or item.array.name == x.array:
            known.clear()
        elif item.array.kind == "local" and item.guards == r.guards and item.value.dtype == i64:
            known[Load(item.array.name, item.index, i64)] = rewrite(item.value, lambda e: known.get(e, e))
        else:
            known.pop(Load(item.array.name, item.index, item.value.dtype), None)
    return rewrite(r.value, lambda e: known.get(e, e))


def _unconditional(r: Record, start: Record, changes: list[Record], builder: Builder) -> bool:
    """Whether the store happens each time, or in both arms of a condition, of which the first then stands for both."""
    if r.guards == start.guards:
        return True
    other = next((c for c in changes if c is not r and _opposite(r, c)), None)
    if other is None or r.guards[:-1] != start.guards or r.loops != other.loops or r.value != other.value:
        return False
    if sum(c.loops == r.loops for c in changes) != 2:
        return False
    between, inside = [], False
    for s in records_of(builder.root):
        if s is r or s is other:
            inside = not inside
        elif inside:
            between.append(s)
    first = r if r.guards[-1].holds else other
    return all(s.guards[: len(first.guards)] == first.guards for s in between) and first.guards[-1].holds


def _opposite(a: Record, b: Record) -> bool:
    if len(a.guards) != len(b.guards) or a.guards[:-1] != b.guards[:-1] or not a.guards:
        return False
    x, y = a.guards[-1], b.guards[-1]
    return x.condition is not None and x.condition is y.condition and x.holds != y.holds and not (x.affine or y.affine)


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for item in block.items:
        if isinstance(item, Loop):
            yield from _blocks(item.body)


# ---- how often it has changed ------------------------------------------------------------------------


class _NoClosedForm(Exception):
    """The number is no sum of multiples of loops."""


@dataclass(frozen=True)
class _Position:
    """A place in the program: in each block on the way, how many of its items are before."""

    path: tuple[tuple[Block, int], ...]
    loops: tuple[Loop, ...]


class _Walk:
    """Counts the changes before each place; a change in both arms of a condition is that of the first arm."""

    def __init__(self, x: ArrayValue, start: Record, steps: Mapping[int, Step]) -> None:
        self.x = x
        self.start = start
        self.steps = steps
        self.op = next((op for op, _ in steps.values()), "+")

    def readers(self, root: Block) -> Iterator[tuple[Record, _Position]]:
        """The stores that read the scalar, others than its changes, and where they are."""
        for r, position in _places(root, ()):
            exprs = (r.value, *r.index)
            if id(r) not in self.steps and any(load.array == self.x.name for e in exprs for load in loads(e)):
                if any(load.index != self.x.prefix for e in exprs for load in loads(e) if load.array == self.x.name):
                    raise _NoClosedForm
                yield r, position

    def value(self, position: _Position) -> Expr:
        """What the scalar is there."""
        times: dict[Const, Expr] = {}
        for depth, (block, count) in enumerate(position.path):
            for item in block.items[:count]:
                self._add(times, self._all(item))
            if len(self.start.loops) <= depth < len(position.path) - 1:  # (loops around the start begin anew)
                loop = block.items[count]
                assert isinstance(loop, Loop)
                body = self._all_of(loop.body)
                self._add(times, {c: _product(_number(loop), n) for c, n in body.items()})
        return self._changed(times)

    def _changed(self, times: Mapping[Const, Expr]) -> Expr:
        value = self.start.value
        for step, count in times.items():
            if self.op == "*":
                if not isinstance(count, Const):
                    raise _NoClosedForm
                value = Binary("*", value, _power(step, int(count.value)), value.dtype)
            elif value.dtype == i64:
                value = add(value, _product(step, count))
            elif count != const_int(0):
                added = Binary("*", step, cast(count, step.dtype), step.dtype)
                zero = isinstance(value, Const) and value.value == 0  # (the sign of a zero is all that it could decide)
                value = added if zero else Binary("+", value, added, value.dtype)
        return value

    def _all(self, item: Loop | Record) -> dict[Const, Expr]:
        """How often an item of a block makes each change."""
        if isinstance(item, Record):
            step = self.steps.get(id(item))
            second = bool(item.guards) and item.guards != self.start.guards and not item.guards[-1].holds
            return {} if step is None or second else {step[1]: const_int(1)}
        inside = self._all_of(item.body)
        return {c: _product(_trips(item), n) for c, n in inside.items()} if inside else {}

    def _all_of(self, block: Block) -> dict[Const, Expr]:
        times: dict[Const, Expr] = {}
        for item in block.items:
            self._add(times, self._all(item))
        return times

    def _add(self, times: dict[Const, Expr], more: Mapping[Const, Expr]) -> None:
        for c, n in more.items():
            times[c] = add(times[c], n) if c in times else n


def _power(step: Const, count: int) -> Const:
    try:
        return Const(float(step.value) ** count, step.dtype)
    except OverflowError:
        raise _NoClosedForm from None


def _places(block: Block, path: tuple[tuple[Block, int], ...]) -> Iterator[tuple[Record, _Position]]:
    for k, item in enumerate(block.items):
        here = (*path, (block, k))
        if isinstance(item, Record):
            yield item, _Position(here, item.loops)
        else:
            yield from _places(item.body, here)


def _product(a: Expr, b: Expr) -> Expr:
    """Of a number and an affine expression."""
    if not isinstance(a, Const) and not isinstance(b, Const):
        raise _NoClosedForm
    return tidy(Binary("*", a, b, i64))


def _number(loop: Loop) -> Expr:
    """Iterations of the loop before this one."""
    if loop.dynamic:
        raise _NoClosedForm
    variable = Var(loop.name, i64)
    if loop.counts:
        return variable
    return sub(variable, loop.lo) if loop.step > 0 else sub(loop.lo, variable)


def _trips(loop: Loop) -> Expr:
    """Iterations of the loop, where that is a number."""
    gap = sub(loop.hi, loop.lo) if loop.step > 0 else sub(loop.lo, loop.hi)
    if loop.dynamic or not isinstance(gap, Const):
        raise _NoClosedForm
    return const_int(max(0, -(-int(gap.value) // abs(loop.step))))


def _rewrite(block: Block, x: ArrayValue, values: Mapping[int, Expr], gone: set[int]) -> None:
    """The stores with these values for the scalar, and without its own."""
    items: list[Loop | Record] = []
    for item in block.items:
        if isinstance(item, Loop):
            _rewrite(item.body, x, values, gone)
        if id(item) in gone:
            continue
        if isinstance(item, Record) and id(item) in values:
            put = _putting(x.name, values[id(item)])
            item.value = rewrite(item.value, put)
            item.index = tuple(tidy(rewrite(e, put)) for e in item.index)
        items.append(item)
    block.items[:] = items


def _putting(name: str, value: Expr) -> Callable[[Expr], Expr]:
    def put(e: Expr) -> Expr:
        if not isinstance(e, Load):
            return e
        return value if e.array == name else Load(e.array, tuple(map(tidy, e.index)), e.dtype, e.span)

    return put
