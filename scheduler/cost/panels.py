"""Operands of a contraction on a CPU: when copies into panels pay, and what lines, pages and sets of caches cost.

A `step` is the distance in bytes between two accesses, `count` how many there are. Factors are of the predicted share
of the peak. Numbers without "(measured)" are choices that no measurement speaks against
(`python -m benchmarks.tiles` has the chosen tile beside all others).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from polyc.poly.target import Target

SCATTER_CYCLES = 2.0  # an element of the result that is stored alone
TURNED_CYCLES = 1.5  # an element of a tile whose rows lie together: shuffles turn them, several are stored at once
TURNED_ROWS = 4  # so many of them are worth that
SCATTER_APART = 8.0  # the same where the lanes' lines do not stay in L1 together until they are full (measured)
PACK_MIN_REUSE = 48  # how often a panel element must be used before copying it pays
PACK_SCATTERED = 16  # the same where its lines would come from L2 one by one
OUTLINE_MIN_REUSE = 8  # how often an element of several factors must be used before computing it ahead pays
ROWS_PACK_MIN_REUSE = 8  # tiles of columns that read a row value, before copying rows pays
ROWS_SHARE = 8  # with a batch, rows that are copied take this part of L2 at most
SCATTERED = 8  # lines between steps of the reduction
ROW_COPY_CYCLES = 1.5  # an element of rows that are copied side by side, loaded whole and shuffled
MOST_ROOM = 16  # elements that a dimension may have for the sake of sets, less one
STRIDED_PACK = 0.9  # a packing copy that is not contiguous costs more
PAGE_STEPS = 0.5  # an unpacked panel whose reduction steps lie on too many pages: TLB and L1 conflict misses
APART_ROWS = 0.97  # ties go to rows side by side in the operand and the result: fewer cache lines (measured)
FEW = 2  # vectors of filters: of fewer, lanes along the image win in spite of its pages (measured; of more they lose)
FEW_WHOLE = 3  # vectors of filters: the same up to so many, where vectors along the image are loaded whole
NEAR = 4  # elements at most this far apart are loaded whole and shuffled
FOR_OTHERS = 2  # ways of L1 for the panel and the results
ONCE_SHARE = 4  # a panel that is packed once takes this part of L2 at most, and the rows pass by
FAR_GAIN = 0.5  # share of the bytes from beyond L2 for which another order of the loops is worth it

LONG = 25  # steps of a reduction; of shorter ones a core overlaps several
MOST_SUMS = 8  # side by side in a long reduction
UNKNOWN_DEPTH = 64  # steps of a reduction whose length is not known
UNKNOWN_LANES = 0.5  # lanes gathered along a loop of unknown length, which may be a batch of one image
SHARED_EACH = 2  # row values shared for each register beside the tile: of more, sums are spilled, too (measured)
UNROLL_INNER = 9  # steps of inner reductions that are written out: a window of 3 x 3
LEAST_EFFICIENCY = 0.05  # below this predicted share of peak the general strategies do as well

LEAST_STEPS = 16  # of a reduction inside serial loops, for which several vectors of sums pay
MOST_BATCH_ROWS = 8  # of such a tile


def over_pages(step: int, count: int, target: Target) -> bool:
    """Whether an operand larger than L1 is walked in steps of a page or more."""
    return step >= target.page and step * count > target.l1


def scattered(step: int, count: int, target: Target) -> bool:
    """Whether steps read lines far from each other, more than stay in L1 until the next rows."""
    return step >= SCATTERED * target.line and step * count > target.l1


def lines_together(step: int, target: Target) -> int:
    """How many lines that are `step` bytes apart from each other stay in L1 together: they share sets."""
    way = target.l1 // target.l1_ways
    return target.l1_ways * (way // max(gcd(step, way), target.line))


def room(count: int, steps: Sequence[int], lines: int, target: Target) -> int:
    """How long a dimension of `count` elements is best in arrays of which `lines` lines are in use at once, so many
    elements apart: the least length at which they stay in L1 together, if a few elements more do it.

    Args:
        steps: of each array, bytes between those lines for each element of the dimension.
    """
    longer = range(count, count + MOST_ROOM)
    return next((n for n in longer if all(lines_together(n * s, target) >= lines for s in steps)), count)


def rows_together(step: int, target: Target) -> int | None:
    """How many rows a tile may have for their lines to stay in L1; None: any number."""
    ours = lines_together(step, target) * (target.l1_ways - FOR_OTHERS) // target.l1_ways
    return ours if step % target.line == 0 and step else None


def copied_share(columns: int | None, lanes: int, target: Target) -> float:
    """What copies of the row values leave of a tile's speed: each serves all columns; `None`: many."""
    if columns is None:
        return 1.0
    cycles = columns / lanes / target.fma_units
    return cycles / (cycles + ROW_COPY_CYCLES)


def scatter_share(
    fma_cycles: float, cells: int, columns: int, step: int, target: Target, turned: bool = False
) -> float:
    """What stores that are not along the columns leave of a tile's speed; `step`: between neighbouring columns of the
    result. `turned`: enough rows of the tile lie side by side in it."""
    near = TURNED_CYCLES if turned else SCATTER_CYCLES
    each = near if columns <= lines_together(step, target) else SCATTER_APART
    return fma_cycles / (fma_cycles + each * cells)
