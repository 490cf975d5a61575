"""`time_tiles`, `interleave_sweeps`: sweeps over the same arrays, again and again, several of them in a block.

    t: (i: ...; i': ...)   ->   blocks of t, blocks of i + f*t: t, i + f*t: (...; ...)     `time_tiles`
    t: i: ...              ->   blocks of t: i + f*t: ...: (t, t + 1, ...)                 `interleave_sweeps`

The nests inside the outer loop become one loop, each delayed as little as is legal, which is skewed against the outer
one until both may be tiled (Wonnacott, "Achieving scalable locality with time skewing", IJPP 2002). The inner loops
stay as they are. Where each element waits for the one before, the sweeps of a block take turns innermost instead: they
do not wait for one another.

Blocks depend on those before them in either direction, so with `parallel` those of one diagonal run at the same time
(Lamport, "The parallel execution of DO loops", CACM 1974).
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.tree import Band, Filter, Node, Sequence, loop_names
from polyc.scheduler.cost.cache_blocks import CHAINS, MOST_ROWS, MOST_SKEW, SWEEPS
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import chain_of, locate


def time_tiles(
    s: Schedule,
    outer: str,
    sweeps: int = SWEEPS,
    rows: int = MOST_ROWS,
    skew: int | None = None,
    parallel: bool = False,
) -> Schedule:
    """Run the nests inside a loop over time in blocks of several sweeps.

    Arguments: `outer`, the loop over time; `sweeps`, iterations of it in a block; `rows`, iterations of the nests'
    outermost loops in a block; `skew`, rows by which a block moves with each sweep, default the fewest that are legal
    (4 at most); `parallel`, all threads share the blocks of a diagonal.
    Before -> after: `t: (i: S0; i_1: S1)` -> `t.out, i.out, t.in, i.in: (S0; S1)`, the second nest delayed, parts
    with fewer loops sunk into the nests; `parallel`: `i.out + t.out`, then `t.out` parallel.
    Refused when: no delay makes one loop of the nests; no such skew makes the blocks legal; bounds depend on data.
    """
    name = s._one(outer)
    heads = _heads(s, name)
    for other in heads[1:]:
        s = s.fuse(heads[0], other, shift="auto")
    row = heads[0]

    def blocks(by: int) -> Schedule:
        tiled = _skewed(s, name, row, by).tile([name, row], [sweeps, rows])
        return _diagonals(tiled, name, row) if parallel else tiled

    return _least_skew("time_tiles", name, blocks, skew)


def interleave_sweeps(
    s: Schedule,
    outer: str,
    sweeps: int = CHAINS,
    rows: int = MOST_ROWS,
    skew: int | None = None,
    parallel: bool = False,
) -> Schedule:
    """Run several sweeps of a nest side by side, each some rows behind the one before, so that none waits for another.

    Arguments: `outer`, the loop over time; `sweeps`, iterations of it side by side; `skew`, rows from one to the next,
    default the fewest with which they are independent (4 at most); `parallel`, all threads share the blocks of a
    diagonal, of `rows` iterations of the second loop.
    Before -> after: `t: i: j: S` -> `t.out, i, j, t.in`, the last unrolled; `parallel`: `i.out + t.out`, then `t.out`
    parallel, `i.in, j, t.in`.
    Refused when: the loops are not nested perfectly; no such skew makes the sweeps independent; bounds depend on data.
    """
    name = s._one(outer)
    chain = chain_of(s.tree, name)
    row, *inner = chain.names()[chain.position(name) + 1 :] or [None]
    if row is None or loop_names(chain.child):
        raise ScheduleError(f"interleave_sweeps: the loops in {name} are not nested perfectly")
    last = f"{name}.in"

    def turns(by: int) -> Schedule:
        skewed = _skewed(s, name, row, by)
        cut = skewed.tile([name, row], [sweeps, rows]) if parallel else skewed.split(name, sweeps)
        cut = cut.permute(f"{row}.in" if parallel else row, *inner, last)
        cut.parallel(last)  # refused where the sweeps wait for one another
        return (_diagonals(cut, name, row) if parallel else cut).unroll(last, sweeps)

    return _least_skew("interleave_sweeps", name, turns, skew)


def _least_skew(what: str, outer: str, tried: Callable[[int], Schedule], skew: int | None) -> Schedule:
    """What the smallest skew that is legal makes; or the given one."""
    refusal: IllegalSchedule | None = None
    for by in range(MOST_SKEW + 1) if skew is None else (skew,):
        try:
            return tried(by)
        except IllegalSchedule as error:
            refusal = error
    assert refusal is not None
    if skew is None:
        refusal.message = f"{what} of {outer}: no skew up to {MOST_SKEW} makes blocks legal; the last"
    raise refusal


def _skewed(s: Schedule, outer: str, row: str, skew: int) -> Schedule:
    return s.skew(row, outer, skew) if skew else s


def _diagonals(s: Schedule, outer: str, row: str) -> Schedule:
    """Blocks of both loops, diagonal by diagonal; those of one on all threads."""
    a, b = f"{outer}.out", f"{row}.out"
    return s.skew(b, a, 1).interchange(a, b).parallel(a)


def _heads(s: Schedule, outer: str) -> list[str]:
    """The outermost loop of each nest inside the outer one; beside nests of several loops, those of one are sunk."""
    chain = chain_of(s.tree, outer)
    inside = chain.names()[chain.position(outer) + 1 :]
    if inside:
        return [inside[0]]
    body: Node = locate(s.tree, outer).band.child
    filters = body.filters if isinstance(body, Sequence) else ()
    least = min(2, max((_depth(f.child) for f in filters), default=0))
    heads = [_first_loop(f) for f in filters if _depth(f.child) >= least]
    if not least or None in heads:
        raise ScheduleError(f"time_tiles: loop {outer} holds something other than nests of loops")
    return [h for h in heads if h is not None]


def _depth(node: Node) -> int:
    """Loops around the innermost statement."""
    own = len(node.members) if isinstance(node, Band) else 0
    return own + max((_depth(c) for c in node.children()), default=0)


def _first_loop(part: Filter) -> str | None:
    return part.child.members[0].name if isinstance(part.child, Band) else None
