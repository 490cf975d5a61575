"""Launches in the interpreter: blocks one after another, the threads of a block from barrier to barrier.

Between two barriers the threads run one after another, in the order asked for. All of them must come to
the same barrier (`DivergentBarrier` otherwise). With race detection every access to memory that threads
share is remembered until the block's next barrier, and until the launch's end for other blocks.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Protocol

from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, For, If, Launch, Let, Stmt, WarpReduce, walk
from polyc.emit.loop_ir.printer import expr_text
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Expr, Var
from polyc.poly.records import dataclass

Env = dict[str, Any]
Run = Callable[[Env], Any]
Steps = Callable[[Env], Iterator[int]]


class DivergentBarrier(BuildError):
    """Some threads of a block wait at a barrier that others do not come to."""

    code = "P308"


class DataRace(BuildError):
    """Two threads touch one element, one of them writes, and nothing orders them."""

    code = "P309"


class Compiler(Protocol):
    """What this module needs of the interpreter."""

    watch: Watch | None
    order: random.Random | None
    reverse: bool

    def stmt(self, s: Stmt) -> Run:
        """A function that runs the statement in an environment."""

    def expr(self, e: Expr) -> Run:
        """A function that evaluates the expression in an environment."""

    def fresh(self, s: Alloc) -> Run:
        """A function that makes the buffer, full of poison."""


@dataclass
class _Cell:
    """Who touched an element. Thread -1 stands for several threads."""

    block: int
    phase: int = -1
    writer: int | None = None
    readers: set[int] = field(default_factory=set)
    written: bool = False
    read: bool = False
    written_elsewhere: bool = False
    read_elsewhere: bool = False


@dataclass
class Watch:
    """The race detector. `block`, `thread` and `phase` (barriers passed) are those running now. Elements of `unordered`
    arrays may be written by any thread: the record of violated accesses."""

    launch: str = ""
    block: int = 0
    thread: int = 0
    phase: int = 0
    private: frozenset[str] = frozenset()
    unordered: frozenset[str] = frozenset()
    pending: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    cells: dict[tuple[str, tuple[int, ...]], _Cell] = field(default_factory=dict)

    def access(self, array: str, at: tuple[int, ...], write: bool) -> None:
        """Note one access. Raises `DataRace`."""
        if not self.launch or array in self.private or array in self.unordered:
            return
        if (array, at) in self.pending:
            who = f"thread {self.thread} of block {self.block}"
            raise DataRace(
                f"{self.launch}: {who} touches {array}{list(at)} before its asynchronous copy was waited for"
            )
        cell = self.cells.get((array, at))
        if cell is None:
            cell = self.cells[array, at] = _Cell(self.block)
        if cell.block != self.block:
            cell.written_elsewhere |= cell.written
            cell.read_elsewhere |= cell.read
            cell.block, cell.phase, cell.written, cell.read = self.block, -1, False, False
        if cell.phase != self.phase:
            cell.phase, cell.writer, cell.readers = self.phase, None, set()
        if cell.written_elsewhere or (write and cell.read_elsewhere):
            raise DataRace(f"{self.launch}: block {self.block} and another block touch {array}{list(at)}")
        others = (write and bool(cell.readers - {self.thread})) or cell.writer not in (None, self.thread)
        if others:
            raise DataRace(
                f"{self.launch}: threads of block {self.block}, one of them {self.thread}, touch {array}{list(at)} "
                f"with no barrier between"
            )
        if write:
            cell.writer, cell.written = self.thread, True
        else:
            cell.readers.add(self.thread)
            cell.read = True


def launch(compiler: Compiler, s: Launch) -> Run:
    """The launch as a function of the environment."""
    grid = [(v, compiler.expr(n)) for v, n in s.grid]
    given = [(e, compiler.expr(e)) for e in s.given]
    shared: list[Alloc] = []
    body = s.body
    while isinstance(body, Alloc) and body.buffer.space == "shared":
        shared.append(body)
        body = body.body
    fresh = [(a.buffer.name, compiler.fresh(a)) for a in shared]
    own = {a.buffer.name for a in shared}
    private = frozenset(x.buffer.name for x in walk(body) if isinstance(x, Alloc))
    steps = _steps(compiler, body)
    threads = list(itertools.product(*(range(n) for _, n in reversed(s.threads))))
    names = [v for v, _ in reversed(s.threads)]

    def run(env: Env) -> None:
        extents = [max(0, int(n(env))) for _, n in grid]
        for condition, holds in given:
            if not holds(env):
                raise BuildError(f"{s.name} is launched although {expr_text(condition)} does not hold")
        watch = compiler.watch
        if watch is not None:
            watch.launch, watch.private = s.name, private
            watch.cells.clear()
        blocks = list(itertools.product(*(range(n) for n in reversed(extents))))
        for number, at in _ordered(compiler, list(enumerate(blocks))):
            inside = {**env, **dict(zip((v for v, _ in reversed(grid)), at))}
            for name, make in fresh:
                inside["@" + name] = make(inside)
            if watch is not None:
                watch.block, watch.phase = number, 0
                watch.pending.clear()
                watch.cells = {k: cell for k, cell in watch.cells.items() if k[0] not in own}
            inside[EXCHANGE] = {}
            each = [{**inside, **dict(zip(names, t)), NUMBER: k} for k, t in enumerate(threads)]
            _block(compiler, s.name, number, [steps(env) for env in each])
        if watch is not None:
            watch.launch = ""

    return run


def _ordered(compiler: Compiler, items: list[Any]) -> list[Any]:
    if compiler.order is not None:
        items = list(items)
        compiler.order.shuffle(items)
        return items
    return items[::-1] if compiler.reverse else items


def _block(compiler: Compiler, name: str, block: int, threads: list[Iterator[int]]) -> None:
    """Run the threads of one block to their ends."""
    watch = compiler.watch
    while True:
        reached: dict[int, int | None] = {}
        for number, thread in _ordered(compiler, list(enumerate(threads))):
            if watch is not None:
                watch.thread = number
            reached[number] = next(thread, None)
        places = set(reached.values())
        if len(places) > 1:
            other = next(n for n in sorted(reached) if reached[n] != reached[0])
            raise DivergentBarrier(f"{name}: threads 0 and {other} of block {block} do not come to the same barrier")
        if places == {None}:
            return
        if watch is not None and not any(isinstance(p, int) and p < 0 for p in places):
            watch.phase += 1


def _steps(compiler: Compiler, s: Stmt) -> Steps:
    """The statement as a generator that stops at each barrier and says which it is; where threads exchange
    registers it stops too, with a negative number: that orders no accesses to memory."""
    if not any(isinstance(x, Barrier | WarpReduce) for x in walk(s)):
        run = compiler.stmt(s)

        def plain(env: Env) -> Iterator[int]:  # a generator: nothing runs before its turn
            run(env)
            yield from ()

        return plain
    if isinstance(s, Barrier):
        return _waiting(compiler, s) if s.copies else lambda env: iter((id(s),))
    if isinstance(s, WarpReduce):
        return _combining(compiler, s)
    if isinstance(s, Block):
        return _sequence([_steps(compiler, c) for c in s.stmts])
    if isinstance(s, For):
        until = None if s.until is None else compiler.expr(s.until)
        return _loop(s.var, compiler.expr(s.lo), compiler.expr(s.hi), s.step, until, _steps(compiler, s.body))
    if isinstance(s, If):
        orelse: Steps = (lambda env: iter(())) if s.orelse is None else _steps(compiler, s.orelse)
        cond, then = compiler.expr(s.cond), _steps(compiler, s.then)
        return lambda env: then(env) if cond(env) else orelse(env)
    assert isinstance(s, (Let, Alloc)), type(s)
    if isinstance(s, Let):
        return _bound(s.name, compiler.expr(s.value), _steps(compiler, s.body))
    return _bound("@" + s.buffer.name, compiler.fresh(s), _steps(compiler, s.body))


EXCHANGE, NUMBER = "@exchange", "@number"  # in the environment: a block's table, a thread's number
OWN, OTHER = "@own", "@other"


def _combining(compiler: Compiler, s: WarpReduce) -> Steps:
    """Pairwise combination in a warp: all leave their values, then each takes its partner's."""
    place = [compiler.expr(e) for e in s.index]
    distances = [s.width >> k for k in range(1, s.width.bit_length())]
    combined = compiler.expr(Binary(s.op, Var(OWN, s.dtype), Var(OTHER, s.dtype), s.dtype))

    def run(env: Env) -> Iterator[int]:
        buffer, at, table, number = env["@" + s.array], tuple(p(env) for p in place), env[EXCHANGE], env[NUMBER]
        for distance in distances:
            table[distance, number] = buffer[at]
            yield -id(s)
            if (distance, number ^ distance) not in table:
                raise DivergentBarrier(
                    f"thread {number} exchanges registers with thread {number ^ distance}: there is none"
                )
            buffer[at] = combined({OWN: buffer[at], OTHER: table[distance, number ^ distance]})

    return run


PENDING = (
    "@copies"  # in the environment of a thread: its asynchronous copies (buffer, element, value), None after a group
)


def begin_copy(compiler: Compiler, env: Env, array: str, at: tuple[int, ...], value: Any, poison: Any) -> None:
    """An asynchronous copy: until it was waited for the element holds garbage."""
    env["@" + array][at] = poison
    env.setdefault(PENDING, []).append((array, at, value))
    if compiler.watch is not None:
        compiler.watch.pending.add((array, at))


def end_copies(env: Env) -> None:
    """The end of a group of copies."""
    env.setdefault(PENDING, []).append(None)


def _waiting(compiler: Compiler, barrier: Barrier) -> Steps:
    """A barrier before which each thread completes its copies, those of the last groups if it must."""

    def run(env: Env) -> Iterator[int]:
        begun = env.pop(PENDING, [])
        if barrier.pending:
            ends = [k for k, copy in enumerate(begun) if copy is None]
            done = ends[-barrier.pending - 1] + 1 if len(ends) > barrier.pending else 0
            begun, env[PENDING] = begun[:done], begun[done:]
        for copy in begun:
            if copy is None:
                continue
            array, at, value = copy
            env["@" + array][at] = value
            if compiler.watch is not None:
                compiler.watch.pending.discard((array, at))
                compiler.watch.access(array, at, True)
        yield id(barrier)

    return run


def _sequence(parts: list[Steps]) -> Steps:
    def run(env: Env) -> Iterator[int]:
        for part in parts:
            yield from part(env)

    return run


def _loop(var: str, lo: Run, hi: Run, step: int, until: Run | None, body: Steps) -> Steps:
    def run(env: Env) -> Iterator[int]:
        for v in range(lo(env), hi(env), step):
            if until is not None and until(env):
                break
            env[var] = v
            yield from body(env)

    return run


def _bound(name: str, value: Run, body: Steps) -> Steps:
    def run(env: Env) -> Iterator[int]:
        env[name] = value(env)
        yield from body(env)

    return run
