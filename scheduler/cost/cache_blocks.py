"""How large blocks are, so that what one part of a schedule leaves for the next is still close at hand.

Bytes, loops and rows. Numbers without "(measured)" are choices that no measurement speaks against.
"""

from __future__ import annotations

from polyc.poly.target import Target

MOST_ROWS = 64  # of a block
LEAST_ROWS = 4  # of a block
BLOCKED_LOOPS = 3  # innermost loops of a nest that are cut: two make the block, one sweeps over it again
SHARED = 4  # nests that hand data on may leave this part of L2 between them: the others' arrays are there, too
FEW_SCORES = 8  # rows of scores fill this part of L2, beside both panels and what passes through
NEAR_BYTES = 16 * 1024  # what the statements of one block of a GPU may hand on to each other in caches
HANDED_ON = 2048  # bytes at a time: of fewer, loads wait for the stores that they come right after (measured)
MOST_STATEMENTS = 32  # of joined nests, which bounds the time to check them

SWEEPS = 16  # in a block: from there on what comes from far away is hidden behind the arithmetic (measured)
LEAST_SWEEPS = 4  # that are worth it
MOST_NESTS = 4  # of one sweep
MOST_SKEW = 4  # rows that a sweep may begin after the one before

TRANSPOSED = 64
"""Iterations of both loops of a transposition: some cache lines of each row, on fewer pages than the TLB has entries
(measured)."""
SHORTEST_TRANSPOSED = 4  # iterations of each loop, or there is nothing to shuffle
MOST_WORK = 24.0  # scalar operations beside which gathers count for little; each element's are written out


def rows_of(row_bytes: int, target: Target) -> int:
    """Rows of a block that fills half of L2, within its bounds."""
    return max(LEAST_ROWS, min(MOST_ROWS, target.l2 // 2 // row_bytes))
