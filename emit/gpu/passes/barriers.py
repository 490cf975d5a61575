"""Barriers, where dependences between the threads of a block need them and nowhere else.

Two accesses of one element conflict when one of them writes and two threads of a block make them. The
text and the serial loops that both threads go through order them; a barrier must stand between. Where
in a block of statements barriers go is the stabbing of intervals: from the latest end on, each interval
without a barrier gets one at its end. Conflicts from one iteration of a loop to a later one that have
no barrier on the way get one at the end of the loop's body. Inner loops come first, because a barrier
inside may serve what is around.

Asynchronous copies are in place when a barrier has waited for them: in launches that have some, all barriers do,
and what a thread copied itself it may read only after one. Where a loop fetches several iterations ahead, those
before it and at its end leave the groups of copies under way that the next iteration does not need.

Conflicts between blocks, and those that no barrier can order, are refused. The record of violated accesses is left
out: any thread may store to an element of it, any of these values may stay, and none of them is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from polyc.emit.gpu.passes.extents import reads
from polyc.emit.gpu.passes.thread_accesses import Around, Path, Touch, each_launch, touches
from polyc.emit.loop_ir.linear import variables
from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, EndCopies, For, Function, If, Launch, Let, Stmt, Store, walk
from polyc.emit.loop_ir.printer import expr_text
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

IN, OUT = isl.dim_type.in_, isl.dim_type.out


def place_barriers(fn: Function, scop: Scop) -> Function:
    """`fn` with the barriers that its launches need.

    Raises:
        BuildError: two blocks, or two threads at one place of the text, conflict; or a barrier
            would stand where only some threads of a block come.
    """
    record = fn.buffers[-1].name if fn.checks else None
    return each_launch(fn, scop, lambda launch, around: _Launch(launch, around, record).run())


@dataclass(frozen=True, eq=False)
class _Need:
    """`first` happens before `second`, in another thread of the block. They part at `path[depth]`: at a
    Block, or in different iterations of a loop (`carried`)."""

    first: Touch
    second: Touch
    depth: int
    carried: bool


class _Launch:
    def __init__(self, launch: Launch, around: Around, record: str | None) -> None:
        self.launch = launch
        self.blocks = len(launch.grid)
        self.ids = self.blocks + len(launch.threads)
        self.shared = {s.buffer.name for s in _shared(launch.body)}
        self.touches = [t for t in touches(launch, around) if t.array != record]
        self.before: set[tuple[int, int]] = set()  # (id of a Block, number of the child that comes after)
        self.at_end: set[int] = set()  # ids of loops
        self.copies = any(isinstance(s, Store) and s.asynchronous for s in walk(launch.body))

    def run(self) -> Launch:
        needs = sorted(self.needs(), key=lambda n: (-n.depth, n.carried, n.second.path[n.depth][1]))
        for n in needs:
            if not self.satisfied(n):
                self.place(n)
        return replace(self.launch, body=self.rebuilt(self.launch.body))

    # ---- which conflicts there are -------------------------------------------------------------

    def needs(self) -> Iterator[_Need]:
        by_array: dict[str, list[Touch]] = {}
        for t in self.touches:
            by_array.setdefault(t.array, []).append(t)
        for group in by_array.values():
            for i, a in enumerate(group):
                for b in group[i:]:
                    if a.write or b.write:
                        yield from self.between(a, b)

    def between(self, a: Touch, b: Touch) -> Iterator[_Need]:
        pairs = a.elements.apply_range(b.elements.reverse())
        if a.array not in self.shared:
            self.within_blocks(pairs, a, b)
        for d in range(self.blocks):
            pairs = pairs.equate(IN, d, OUT, d)
        if not (a.asynchronous or b.asynchronous) or a.write == b.write:
            # (what a thread copies asynchronously it must wait for, too)
            pairs = self.apart(pairs, range(self.blocks, self.ids))
        if pairs.is_empty():
            return
        common, text = _meeting(a, b)
        loops = 0
        for depth in range(common):
            node = a.path[depth][0]
            if not isinstance(node, For):
                continue
            d = self.ids + loops
            loops += 1
            if not pairs.order_lt(IN, d, OUT, d).is_empty():
                yield _Need(a, b, depth, True)
            if not pairs.order_gt(IN, d, OUT, d).is_empty():
                yield _Need(b, a, depth, True)
            pairs = pairs.equate(IN, d, OUT, d)
            if pairs.is_empty():
                return
        if text == 0:
            raise self.refusal(a, b, "at the same time: no barrier can order them")
        yield _Need(a, b, common, False) if text < 0 else _Need(b, a, common, False)

    def within_blocks(self, pairs: isl.Map, a: Touch, b: Touch) -> None:
        if not self.apart(pairs, range(self.blocks)).is_empty():
            raise self.refusal(a, b, "in different blocks of one launch, which nothing orders")

    def apart(self, pairs: isl.Map, dims: range) -> isl.Map:
        """Where one of the variables differs."""
        out = isl.Map.empty(pairs.get_space())
        for d in dims:
            out = out.union(pairs.order_lt(IN, d, OUT, d)).union(pairs.order_gt(IN, d, OUT, d))
            pairs = pairs.equate(IN, d, OUT, d)
        return out

    def refusal(self, a: Touch, b: Touch, how: str) -> BuildError:
        return BuildError(f"{self.launch.name}: {_said(a)} and {_said(b)} touch the same element {how}")

    # ---- where barriers go ---------------------------------------------------------------------

    def satisfied(self, n: _Need) -> bool:
        start = n.depth + (0 if n.carried else 1)
        if any(self.after(node, k) for node, k in n.first.path[start:]):
            return True
        if any(self.earlier(node, k) for node, k in n.second.path[start:]):
            return True
        if n.carried:
            return False
        block, i = n.first.path[n.depth]
        j = n.second.path[n.depth][1]
        return any((id(block), p) in self.before for p in range(i + 1, j + 1))

    def after(self, node: Stmt, k: int) -> bool:
        """Whether a barrier comes after the k-th body, before the statement ends."""
        if isinstance(node, For):
            return id(node) in self.at_end
        return isinstance(node, Block) and any((id(node), p) in self.before for p in range(k + 1, len(node.stmts)))

    def earlier(self, node: Stmt, k: int) -> bool:
        """Whether a barrier comes before the k-th body, since the statement began."""
        return isinstance(node, Block) and any((id(node), p) in self.before for p in range(1, k + 1))

    def place(self, n: _Need) -> None:
        node, _ = n.second.path[n.depth]
        parting = self.parting(n.second.path[: n.depth + n.carried])
        if parting:
            why = f"the barrier that would order them would stand under {parting}, where not all threads may come"
            raise self.refusal(n.first, n.second, f"in two threads, and {why}; bind another loop")
        if n.carried:
            assert isinstance(node, For)
            self.at_end.add(id(node))
        else:
            self.before.add((id(node), n.second.path[n.depth][1]))

    def parting(self, path: Path) -> str:
        """The first statement of a path that threads of a block may take differently, in words; "" where none is."""
        varying = {v for v, n in self.launch.threads if n > 1}
        for s, _ in path:
            decides = tuple(stmt_exprs(s)) if isinstance(s, (For, If, Let)) else ()
            if not reads(*decides) and not any(varying & variables(e) for e in decides):
                continue
            if isinstance(s, Let):
                varying.add(s.name)
            elif isinstance(s, For):
                said = "are read from memory" if reads(*decides) else "differ between threads"
                return f"the loop '{s.loop or s.var}', whose bounds {said}"
            else:
                return f"the condition {expr_text(decides[0])}"
        return ""

    def rebuilt(self, s: Stmt) -> Stmt:
        if isinstance(s, Block):
            out: list[Stmt] = []
            for k, child in enumerate(s.stmts):
                if (id(s), k) in self.before:
                    # Without a barrier at its end the later iterations of a loop wait for nothing more.
                    out.append(Barrier(self.copies, _ahead(child) if id(child) in self.at_end else 0))
                out.append(self.rebuilt(child))
            return Block(tuple(out))
        new = with_bodies(s, tuple(self.rebuilt(b) for b in s.bodies()))
        if isinstance(new, For) and id(s) in self.at_end:
            return replace(new, body=Block((new.body, Barrier(self.copies, _ahead(s)))))
        return new


def _ahead(s: Stmt) -> int:
    """How many groups of copies may be under way at a barrier before the first iteration of a loop, or after one:
    all barriers elsewhere wait for all copies."""
    ends = [x.ahead for x in walk(s) if isinstance(x, EndCopies)] if isinstance(s, For) else []
    return ends[0] if isinstance(s, For) and len(ends) == 1 and _directly(s.body) else 0


def _directly(body: Stmt) -> bool:
    """Whether each run of the body ends a group."""
    return isinstance(body, EndCopies) or (isinstance(body, Block) and any(_directly(x) for x in body.stmts))


def _shared(s: Stmt) -> Iterator[Alloc]:
    while isinstance(s, Alloc):
        if s.buffer.space == "shared":
            yield s
        s = s.body


def _meeting(a: Touch, b: Touch) -> tuple[int, int]:
    """How many steps the two paths share, and the order of the text there: negative when `a` is first,
    0 when nothing orders them."""
    for depth, ((s, i), (t, j)) in enumerate(zip(a.path, b.path)):
        if i != j:
            return depth, (i - j if isinstance(s, Block) else 0)
        assert s is t
    return min(len(a.path), len(b.path)), 0


def _said(t: Touch) -> str:
    what = "the write to" if t.write else "the read of"
    return f"{what} {t.array}[{', '.join(expr_text(e) for e in t.index)}]"
