"""`time_tiles`: sweeps over the same arrays, again and again, in blocks of several sweeps.

    for t: (for i: ...; for i': ...)   ->   for blocks of t, for blocks of i + f*t: for t, for i + f*t: (...; ...)

The nests inside the outer loop become one loop, each delayed as little as is legal, which is skewed against the outer
one until both may be tiled (Wonnacott, "Achieving scalable locality with time skewing", IJPP 2002). The inner loops
stay as they are.
"""

from __future__ import annotations

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.tree import Band, Filter, Node, Sequence
from polyc.scheduler.cost.cache_blocks import MOST_ROWS, MOST_SKEW, SWEEPS
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import chain_of, locate


def time_tiles(
    s: Schedule, outer: str, sweeps: int = SWEEPS, rows: int = MOST_ROWS, skew: int | None = None
) -> Schedule:
    """Run the nests inside a loop over time in blocks of several sweeps.

    Arguments: `outer`, the loop over time; `sweeps`, iterations of it in a block; `rows`, iterations of the nests'
    outermost loops in a block; `skew`, rows by which a block moves with each sweep, default the fewest that are legal
    (4 at most).
    Before -> after: `t: (i: S0; i_1: S1)` -> `t.out, i.out, t.in, i.in: (S0; S1)`, the second nest delayed.
    Refused when: no delay makes one loop of the nests; no such skew makes the blocks legal; bounds depend on data.
    """
    name = s._one(outer)
    heads = _heads(s, name)
    for other in heads[1:]:
        s = s.fuse(heads[0], other, shift="auto")
    refusal: IllegalSchedule | None = None
    for by in range(MOST_SKEW + 1) if skew is None else (skew,):
        try:
            return _blocks(s, name, heads[0], (sweeps, rows), by)
        except IllegalSchedule as error:
            refusal = error
    assert refusal is not None
    if skew is None:
        refusal.message = f"time_tiles of {name}: no skew up to {MOST_SKEW} makes blocks legal; the last"
    raise refusal


def _blocks(s: Schedule, outer: str, row: str, sizes: tuple[int, int], skew: int) -> Schedule:
    skewed = s.skew(row, outer, skew) if skew else s
    return skewed.tile([outer, row], list(sizes))


def _heads(s: Schedule, outer: str) -> list[str]:
    """The outermost loop of each nest inside the outer one."""
    chain = chain_of(s.tree, outer)
    inside = chain.names()[chain.position(outer) + 1 :]
    if inside:
        return [inside[0]]
    body: Node = locate(s.tree, outer).band.child
    heads = [_first_loop(f) for f in body.filters] if isinstance(body, Sequence) else []
    if not heads or None in heads:
        raise ScheduleError(f"time_tiles: loop {outer} holds something other than nests of loops")
    return [h for h in heads if h is not None]


def _first_loop(part: Filter) -> str | None:
    return part.child.members[0].name if isinstance(part.child, Band) else None
