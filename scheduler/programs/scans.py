"""`scan_panels`: scans along rows, panel by panel through shared memory, a thread a row.

    for blocks of rows
      for k.out: copy a panel of each array in, and results back
        for rows (threads): for k.in: Y[row, k] = Y[row, k - 1] + X[row, k]

A thread that walks its row in device memory touches elements that lie apart from its neighbours'; a panel is copied by
all threads together, neighbouring elements by neighbouring threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.errors import ScheduleError
from polyc.poly.tree import GpuAxis
from polyc.poly.tree import Sequence as InOrder
from polyc.scheduler.cost.gpu_rows import SCAN_PANEL, SCAN_ROWS
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.storage import promoted_below, touches
from polyc.scheduler.transformations.tree_edit import chain_of, locate

OTHER_AXES: tuple[GpuAxis, ...] = ("block.y", "block.z")


def scan_panels(
    s: Schedule,
    row: str,
    along: Sequence[str] | str,
    rows: int = SCAN_ROWS,
    panel: int = SCAN_PANEL,
    others: Sequence[str] = (),
) -> Schedule:
    """Run scans along rows panel by panel through shared memory, a thread of a GPU a row.

    Arguments: `row`, the loop over rows; `along`, the serial loops inside it, one for each scan; `rows`, rows (threads)
    of a block; `panel`, elements of a row in a panel; `others`, the loops directly nested with `row`, outermost first,
    two at most: `block.y` and `block.z`. All arrays of a scan but local ones go through panels.
    Before -> after: `i: (S0; k: S1)` -> `i.out: (i.in: S0; k.out: (copies; i.in_1: k.in: S1))`.
    Refused when: a dependence leads from one row to another; a subscript or the bounds of a loop depend on data.
    """
    if len(others) > len(OTHER_AXES):
        raise ScheduleError(f"scan_panels takes {len(OTHER_AXES)} loops beside the rows at most, not {len(others)}")
    s, threads = _threads_apart(_blocks(s, row, rows, others), f"{row}.in")
    for loop in [along] if isinstance(along, str) else along:
        s = _in_panels(s, loop, panel)
    for loop, axis in ((f"{row}.out", "block.x"), *zip(others, OTHER_AXES), *((t, "thread.x") for t in threads)):
        s = s.bind(loop, axis)
    return s


def _blocks(s: Schedule, row: str, rows: int, others: Sequence[str]) -> Schedule:
    """The rows cut in blocks, the rows of a block innermost of the nest."""
    s = s.split(row, rows)
    order = [*others, f"{row}.out", f"{row}.in"]
    present = [n for n in chain_of(s.tree, f"{row}.in").names() if n in order]
    return s if present == order else s.permute(*order)


def _threads_apart(s: Schedule, thread: str) -> tuple[Schedule, list[str]]:
    """A loop over the rows of a block around each part of what they do; the names of these loops."""
    chain, before = chain_of(s.tree, thread), set(s.loops)
    if chain.members[-1].name == thread and isinstance(chain.child, InOrder):
        s = s.distribute(thread)
    return s, [thread, *(n for n in s.loops if n not in before)]


def _in_panels(s: Schedule, loop: str, panel: int) -> Schedule:
    """A scan cut in panels, outside of the loop over rows that is directly around it, and their copies."""
    chain = chain_of(s.tree, loop)
    thread = chain.names()[chain.position(loop) - 1]
    s = s.split(loop, panel).permute(f"{loop}.out", thread, f"{loop}.in")
    spot = locate(s.tree, f"{loop}.out")
    inside = [s.scop.statements[n] for n in spot.member.schedule]
    for name, array in s.scop.arrays.items():
        if array.kind != "local" and any(any(touches(x, name)) for x in inside) and not promoted_below(spot.band, name):
            s = s.promote(name, f"{loop}.out", "shared")
    return s
