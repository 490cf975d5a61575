"""When nests run block by block, so that what one leaves for the next stays in L2.

Bytes handed on in all, the blocks they are made in, and those of operands that every block reads again: where a block's
share of the first fits, blocks save a way to L3 and back for all of them, and cost the way from L3 for the last.
"""

from __future__ import annotations

from polyc.poly.target import Target
from polyc.scheduler.cost.model import nominal

NEAR = 0.75  # of L2 for what a block hands on; the rest is for the operand that comes again

PIECES = 0.25
"""Cycles a byte that is read in pieces waits for what has left L2, as no prefetcher follows. Measured with padded
images of 6 to 14 MB, 3 x 3 windows, 32 to 96 channels to 8 to 72: 0.15 on an idle machine, 0.5 to 2 where others use
L3, too (Zen 3)."""
LEFT_L2 = 2
"""Times L2: what is larger has left it when it is read again."""
MOST_ROWS = (4, 2)
"""Of windows in a block, the most first (more save little: of 3 x 3 windows with stride 1, 8 rows copy a quarter more
than once, 4 half)."""
CLEARLY = 2
"""Times what blocks of windows cost is to be saved: both are estimates."""


def near_bytes(target: Target) -> int:
    """The most that one block may hand on."""
    return int(target.l2 * NEAR)


def saved(handed: int, target: Target) -> float:
    """Cycles of L3 that blocks save."""
    machine = nominal(target)
    return handed * (1 / machine.read["l3"] + 1 / machine.write["l3"])


def read_again(size: float, target: Target) -> float:
    """Cycles of reading so many bytes from L3, one after another."""
    return size / nominal(target).read["l3"]


def read_in_pieces(size: float) -> float:
    """The same where they are pieces of rows."""
    return size * PIECES


def saved_pieces(handed: int, target: Target) -> float:
    """Cycles that blocks save where what is handed on is read in pieces."""
    return read_in_pieces(handed) + handed / nominal(target).write["l3"]


def recomputed(again: int, target: Target) -> float:
    """Cycles of making so many bytes again, in L2."""
    machine = nominal(target)
    return again * (1 / machine.read["l2"] + 1 / machine.write["l2"])


def lost(blocks: int, again: int, target: Target) -> float:
    """Cycles that reading operands again for each block takes; half of L2 holds them without."""
    return 0.0 if again <= target.l2 // 2 else read_again((blocks - 1) * again, target)


def saves(handed: int, blocks: int, again: int, target: Target) -> bool:
    """Whether blocks pay."""
    return saved(handed, target) > lost(blocks, again, target)
