"""Values that pass from masked stores to loads through registers.

A processor cannot hand what a masked store writes to a load of the same elements: the load waits until the store is in
the cache. In straight-line code the value is kept instead, as a choice between what is stored and what was there; and
where another store to the same elements follows, only the last one is made, under either mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyc.emit.loop_ir.loops import Block, Function, Let, Stmt, Store, VLoad, accesses
from polyc.emit.loop_ir.rewrite import Names, binders, over_bodies, stmt_exprs
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Expr, Load, Select, Var, rewrite
from polyc.poly.records import replace

Key = tuple[str, tuple[Expr, ...]]
"""Array and subscripts of a vector."""

LONGEST = 64  # stores of one run: bounds the nesting of Lets


def forward_masked(fn: Function) -> Function:
    """Hand on what masked stores of a run of stores write to its later loads and stores of the same elements."""
    names = Names({*fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, (Block, Let)):
            return over_bodies(s, visit)
        out: list[Stmt] = []
        run: list[Store | Let] = []
        for part in _flat(s):
            if isinstance(part, (Store, Let)) and len(run) < LONGEST:
                run.append(part)
                continue
            out += _Run(run, names).items()
            run = [part] if isinstance(part, (Store, Let)) else []
            out += [] if run else [visit(part)]
        items = [*out, *_Run(run, names).items()]
        return s if items == [*_flat(s)] else _nested(items)

    return replace(fn, body=visit(fn.body))


def _flat(s: Stmt) -> Iterator[Stmt]:
    """Statements in order; a `Let` stands for its binding alone (names are unique)."""
    if isinstance(s, Block):
        for part in s.stmts:
            yield from _flat(part)
    elif isinstance(s, Let):
        yield replace(s, body=Block(()))
        yield from _flat(s.body)
    else:
        yield s


def _nested(items: Sequence[Stmt]) -> Stmt:
    """The statements, what follows a `Let` inside it."""
    tail: list[Stmt] = []
    for s in reversed(items):
        tail = [replace(s, body=_block(tail))] if isinstance(s, Let) else [s, *tail]
    return _block(tail)


def _block(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Block(tuple(stmts))


class _Run:
    """One run of stores and bindings."""

    def __init__(self, run: Sequence[Store | Let], names: Names) -> None:
        self.run = run
        self.names = names
        self.known: dict[Key, Expr] = {}  # what elements hold
        self.waiting: dict[Key, int] = {}  # masked stores that a later one may include: their places in `out`
        self.out: list[Stmt | None] = []

    def items(self) -> list[Stmt]:
        """The run with values handed on."""
        if not any(isinstance(s, Store) and _is_masked(s) for s in self.run):
            return list(self.run)
        for place, s in enumerate(self.run):
            if isinstance(s, Let):
                self._reads(s.value)
                self.out.append(replace(s, value=self._fixed(s.value)))
            else:
                self._store(place, s)
        return [s for s in self.out if s is not None]

    def _fixed(self, e: Expr) -> Expr:
        def known(x: Expr) -> Expr:
            return self.known.get((x.array, x.index), x) if isinstance(x, VLoad) and x.mask is None else x

        return rewrite(e, known) if self.known else e

    def _reads(self, *exprs: Expr) -> None:
        """Stores to what is read, other than what is known, must have been made."""
        for e in exprs:
            for x in _loads(e):
                for key in [k for k in self.waiting if k[0] == x.array]:
                    if not (isinstance(x, VLoad) and x.mask is None and (x.array, x.index) in self.known):
                        del self.waiting[key]

    def _store(self, place: int, s: Store) -> None:
        self._reads(*stmt_exprs(s))
        key = s.array, s.index
        s = replace(s, value=self._fixed(s.value), mask=None if s.mask is None else self._fixed(s.mask))
        for other in [k for k in {**self.known, **self.waiting} if k[0] == s.array and k != key]:
            self.known.pop(other, None)
            self.waiting.pop(other, None)
        old = self._old(place, key)
        if s.mask is None or s.mask.lanes == 1 or old is None:
            self.known.pop(key, None)
            self.waiting.pop(key, None)
            self.out.append(s)
            return
        value: Expr = Select(s.mask, s.value, old, s.value.dtype)
        before = self.waiting.pop(key, None)
        if before is not None:
            earlier = self.out[before]
            assert isinstance(earlier, Store) and earlier.mask is not None
            if not self._written_since(before, earlier.mask):
                s = replace(s, mask=Binary("or", earlier.mask, s.mask, bool_))
                self.out[before] = None
        name = self.names.fresh(f"{s.array}_new")
        self.known[key] = Var(name, value.dtype, value.lanes)
        self.out.append(Let(name, value, Block(())))
        self.waiting[key] = len(self.out)
        self.out.append(replace(s, value=self.known[key], reduction=None))

    def _written_since(self, place: int, e: Expr) -> bool:
        """Whether what an expression reads is stored to at or after a place."""
        read = {x.array for x in _loads(e)}
        return any(isinstance(s, Store) and s.array in read for s in self.out[place:])

    def _old(self, place: int, key: Key) -> Expr | None:
        """What the elements held before the store at `place`; None: nobody asks for the value behind it."""
        if all(e.lanes == 1 for e in key[1]):
            return None
        asked = self._asked(place, key)
        return self.known.get(key, asked) if asked is not None else None

    def _asked(self, place: int, key: Key) -> Expr | None:
        """The next whole load of these elements before others of the array may change."""
        for s in self.run[place + 1 :]:
            for e in stmt_exprs(s):
                for x in accesses(e):
                    if isinstance(x, VLoad) and x.mask is None and (x.array, x.index) == key:
                        return x
            if isinstance(s, Store) and s.array == key[0] and (s.index != key[1] or s.mask is None):
                return None
        if key not in self.known:
            return None
        current = self.known[key]
        return current if isinstance(self.run[place], Store) and key in self.waiting else None


def _loads(e: Expr) -> Iterator[Load | VLoad]:
    return iter(accesses(e))


def _is_masked(s: Store) -> bool:
    return s.mask is not None and s.mask.lanes > 1
