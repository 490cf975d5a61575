"""Checkpoints at equal distances: of a chain of n layers about sqrt(n) values are kept, the others are made again, each
once (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 1604.06174, algorithm 3)."""

from __future__ import annotations

from math import isqrt

from polyc.graph_driver.rematerialising.program import Need, Program, measure


def by_segments(program: Program, limit: int | None = None) -> tuple[list[int], Need]:
    """The order whose peak is smallest among those with checkpoints every `b` bytes, for several `b` around the square
    root; with a `limit` the cheapest that keeps it, if one does."""
    waiting = _waiting(program)
    total = program.size(waiting)
    best: tuple[list[int], Need] | None = None
    if not waiting:
        order = [*range(len(program.steps))]
        return order, measure(program, order)
    count = len(waiting)
    for parts in sorted({max(1, round(isqrt(count) * f / 4)) for f in range(1, 13)} | {1, 2, 3}):
        order = _order(program, waiting, total / parts)
        need = measure(program, order)
        if best is None or _better(need, best[1], limit):
            best = order, need
    assert best is not None
    return best


def _better(a: Need, b: Need, limit: int | None) -> bool:
    if limit is not None and (a.peak <= limit or b.peak <= limit):
        return a.peak <= limit and (b.peak > limit or a.cost < b.cost)
    return (a.peak, a.cost) < (b.peak, b.cost)


def _waiting(program: Program) -> list[str]:
    """Values that are alive together when most is, in the order in which they are made: those that wait for a far
    use."""
    ends = {v: uses[-1] for v, uses in program.uses.items()}
    alive, most, best = 0, -1, 0
    for k, s in enumerate(program.steps):
        alive += program.size(s.makes)
        if alive > most:
            most, best = alive, k
        for v in {*s.reads, *s.makes}:
            if ends.get(v, program.makers.get(v, -1)) == k and v in program.makers and v not in program.kept:
                alive -= program.sizes.get(v, 0)
    found = [v for k in range(best + 1) for v in program.steps[k].makes if v in program.sizes]
    return [v for v in found if ends.get(v, -1) > best]


def _order(program: Program, waiting: list[str], room: float) -> list[int]:
    """Waiting values are checkpoints where `room` bytes of others have come since the last one; the others are dropped
    after their first use, and made again, all of a segment, at the next."""
    steps = program.steps
    dropped: set[str] = set()
    since = 0
    for v in waiting:
        since += program.sizes[v]
        if since > room:
            since = 0
        elif steps[program.makers[v]].again:
            dropped.add(v)
    turn = max((program.makers[v] for v in waiting), default=0)  # where the way back begins
    order: list[int] = []
    there: set[str] = set()

    def make(k: int) -> None:
        pending = [k]
        while pending:
            top = pending[-1]
            missing = [
                program.makers[v] for v in steps[top].reads
                if v in program.makers and v in program.sizes and v not in there
            ]  # fmt: skip
            if missing and top not in missing:
                pending += [m for m in dict.fromkeys(missing)][::-1]
                continue
            pending.pop()
            if top != k and all(v in there for v in steps[top].makes):
                continue
            order.append(top)
            there.update(steps[top].makes)

    ends = {v: uses[-1] for v, uses in program.uses.items()}
    for k in range(len(steps)):
        make(k)
        if k == turn:
            there -= dropped
        done = [v for v in there if ends.get(v, -1) <= k and v not in program.kept and steps[program.makers[v]].again]
        there.difference_update(done)
    return order
