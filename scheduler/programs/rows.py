"""Rows of which a block of threads has one each: `rows_per_block`, and `keep_rows`: what several passes over a row use
stays in the block between them.

    for each row (a block)
      copy the row to shared memory
        passes of all threads over it
      copy results out

Rows whose length comes with the call have two versions: one for the sizes at which they fit, the passes over device
memory for all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.errors import ScheduleError
from polyc.poly.tree import Band, GpuAxis, Promote
from polyc.poly.tree import Sequence as InOrder
from polyc.scheduler.cost.gpu_rows import MOST, SECOND
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.storage import touches
from polyc.scheduler.transformations.tree_edit import chain_of, locate

BLOCK_AXES: tuple[GpuAxis, ...] = ("block.x", "block.y", "block.z")


def keep_rows(
    s: Schedule,
    loop: str,
    arrays: Sequence[str] | str,
    fill: bool = False,
    where: str | None = None,
    nest: str | None = None,
) -> Schedule:
    """Keep what one iteration of a loop uses of some arrays in shared memory.

    Arguments: `loop`, an iteration of which is a row; `arrays`, innermost buffer first; `fill`: copy in arrays that
    are both read and written (False where the row is written before it is read); `where`, a condition on sizes as text
    (`"N <= 4096"`) for those at which rows fit; `nest`, the loop that then gets two versions (`loop` or one around it).
    Before -> after: `i: (passes over A[i])` -> `i: (copy of A[i] in; passes over the buffer; copy out)`.
    Refused when: a value that is not copied in is read; a subscript depends on data; all sizes fulfil `where`, or none.
    """
    if where is not None:
        s = s.version(nest or loop, where)
    inside = [s.scop.statements[n] for n in locate(s.tree, loop).member.schedule]
    for array in [arrays] if isinstance(arrays, str) else arrays:
        read, written = (any(used) for used in zip(*(touches(x, array) for x in inside), strict=True))
        s = s.promote(array, loop, "shared", copy_in=None if read and (fill or not written) else False)
    return s


def rows_per_block(
    s: Schedule, *rows: str, along: Sequence[str] | str = (), threads: int = MOST, warps: bool = True
) -> Schedule:
    """Give each row to a block of threads of a GPU, which go along it together.

    Arguments: `rows`, the loops over rows, directly nested, outermost first (three at most); `along`, the loop of each
    nest inside that the threads share, default the innermost; `threads` of a block; `warps`: one thread joins the
    partial results of a reduction (a tree of shuffles on a GPU that has them), else 16 threads join them first.
    Before -> after: `i: (j: S0; j_1: sum)` -> `i (block.x): (j.in (thread.x): j.out: S0; j_1.in (thread.x): j_1.out:
    partial sums; their join)`.
    Refused when: rows depend on one another, or a loop along them carries more than a reduction; bounds depend on data.
    """
    if not rows or len(rows) > len(BLOCK_AXES):
        raise ScheduleError(f"rows_per_block takes one to {len(BLOCK_AXES)} loops over rows, not {len(rows)}")
    shared = [along] if isinstance(along, str) else list(along)
    free, nests = set(s.parallel_loops()), _nests_below(s, rows[-1])
    unknown = [n for n in shared if not any(n in names for names in nests)]
    if not nests or unknown:
        what = f"'{unknown[0]}' is no loop inside" if unknown else "no loop goes along the rows of"
        raise ScheduleError(f"rows_per_block: {what} {rows[-1]}")
    for names in nests:
        loop = next((n for n in names if n in shared), names[-1])
        s = dealt(s, names, loop, threads) if loop in free else reduced(s, names, loop, threads, warps)
    for name, axis in zip(reversed(rows), BLOCK_AXES, strict=False):
        s = s.bind(name, axis)
    return s


def _nests_below(s: Schedule, row: str) -> list[list[str]]:
    """The nested loops of each part of what a loop does, outermost first; parts without loops give none."""
    spot, chain = locate(s.tree, row), chain_of(s.tree, row)
    inside = chain.names()[chain.position(row) + 1 :]
    if inside:
        return [list(inside)]
    body = spot.band.child
    while isinstance(body, Promote):
        body = body.child
    parts = body.filters if isinstance(body, InOrder) else ()
    return [list(chain_of(s.tree, p.child.members[0].name).names()) for p in parts if isinstance(p.child, Band)]


def dealt(s: Schedule, chain: Sequence[str], loop: str, threads: int) -> Schedule:
    """Iteration j of the loop runs on thread j % threads: `loop.in`, now outermost of its nest `chain`."""
    return _cut(s, chain, loop, threads).bind(f"{loop}.in", "thread.x")


def reduced(s: Schedule, chain: Sequence[str], loop: str, threads: int, warps: bool) -> Schedule:
    """Partial results for each thread, joined in two stages; where there are `warps` with shuffles, one thread
    joins them, and `polyc.emit.gpu.passes.shuffle_trees` makes a tree of that."""
    s = _stage(_cut(s, chain, loop, threads), f"{loop}.in")
    if threads <= SECOND or warps:
        return s
    for join in [n for n in s.loops if n.startswith(f"{loop}.in.join")]:
        s = _stage(_cut(s, [join], join, SECOND), f"{join}.in")
    return s


def _cut(s: Schedule, chain: Sequence[str], loop: str, threads: int) -> Schedule:
    """The loop cut, what a thread has outermost of its nest."""
    s = s.split(loop, threads)
    rest = [f"{loop}.out" if n == loop else n for n in chain]
    return s.permute([f"{loop}.in", *rest])


def _stage(s: Schedule, loop: str) -> Schedule:
    s = s.rfactor(loop).bind(loop, "thread.x")
    for name in [n for n in s.loops if n.startswith(f"{loop}.init")]:
        s = s.bind(name, "thread.x")
    return s
