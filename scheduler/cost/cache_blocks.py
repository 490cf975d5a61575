"""How large blocks are, so that what one part of a schedule leaves for the next is still close at hand.

Bytes, loops and rows. Numbers without "(measured)" are choices that no measurement speaks against.
"""

from __future__ import annotations

from polyc.poly.records import dataclass
from polyc.poly.target import Target

MOST_ROWS = 64  # of a block
LEAST_ROWS = 4  # of a block
BLOCKED_LOOPS = 3  # innermost loops of a nest that are cut: two make the block, one sweeps over it again
SHARED = 4  # nests that hand data on may leave this part of L2 between them: the others' arrays are there, too
FEW_SCORES = 8  # rows of scores fill this part of L2, beside both panels and what passes through
NEAR_BYTES = 16 * 1024  # what the statements of one block of a GPU may hand on to each other in caches
HANDED_ON = 2048  # bytes at a time: of fewer, loads wait for the stores that they come right after (measured)
MOST_STATEMENTS = 32  # of joined nests, which bounds the time to check them

COLUMNS = 48  # of a block, where a schedule by hand does not say
COLUMNS_SHARE = 3 / 4  # of L2 that a block's columns and those of its steps fill
MOST_COLUMNS = 64  # of a block: more would save no more, and the block's own columns run on one thread
LEAST_COLUMN_BLOCKS = 4  # that are worth it

SWEEPS = 16  # in a block: from there on what comes from far away is hidden behind the arithmetic (measured)
LEAST_SWEEPS = 4  # that are worth it
MOST_NESTS = 4  # of one sweep
MOST_SKEW = 4  # rows that a sweep may begin after the one before
CHAINS = 8  # sweeps side by side: an addition and a division of one take as long as eight divisions (Zen 4, measured)
LEAST_CHAINS = 2  # that are worth it
WAY = 4096  # bytes of one way of L1, after which elements share a set: 32 KB in 8 ways, or 48 KB in 12
MOST_IN_SET = 9  # lines of it that rows side by side may need (9 measured as none, 17 take three times as long; Zen 3)
CACHE_LINE = 64
MOST_OPERATIONS = 256  # of all sweeps side by side, which are written out one after another
FAR = 2.0  # bringing a sweep's rows from far away beside what is done with them near by (measured on two stencils)
OVERFULL = 1.3  # the same for rows of a block that fill more than L2 (measured on heat-3d)
SHORTER = 3  # numbers of sweeps that are compared, each half of the one before
BLOCK_ROWS = (4, 8, 16, 32, 64)  # that are compared
MOST_ACROSS = 128  # blocks of the rows that are looked at: more would be more of the same
MOST_BLOCKS = 16  # of the sweeps, of which the diagonals are looked at
LEAST_BUSY = 1.25  # threads with work, on average, that are worth a barrier for each diagonal

TABLE = 32  # rows and columns of a block of a table (16, 32, 64 and 128 by 16 measured on nussinov)
LEAST_TABLE = 8  # of a block that threads share
TABLE_BLOCKS = 8  # in each direction for each thread, so that most diagonals have work for all

TRANSPOSED = 64
"""Iterations of both loops of a transposition: some cache lines of each row, on fewer pages than the TLB has entries
(measured)."""
SHORTEST_TRANSPOSED = 4  # iterations of each loop, or there is nothing to shuffle
MOST_WORK = 24.0  # scalar operations beside which gathers count for little; each element's are written out


@dataclass(frozen=True)
class Blocks:
    """Blocks of several sweeps: `sweeps` by `rows`.

    `time`: of a sweep, beside one of a single thread near by; `shared`: the same where threads share each sweep
    instead; `busy`: the share of the threads' time in which they work.
    """

    sweeps: int
    rows: int
    time: float
    shared: float
    busy: float


def shared_blocks(
    sweeps: int, rows: int, row_bytes: int, skew: int, threads: int, target: Target, longest: int = SWEEPS
) -> Blocks:
    """The blocks with which threads that share diagonals of them take least time.

    Args:
        sweeps, rows: iterations of the two loops, of the second in one of the first.
        row_bytes: what an iteration of the second writes.
        skew: rows by which a block moves with each sweep.
        threads: how many share the blocks of a diagonal.
        longest: sweeps of a block, at most.
    """
    found: list[Blocks] = []
    for deep in sorted({max(1, min(sweeps, longest >> k)) for k in range(SHORTER)}):
        for wide in BLOCK_ROWS:
            if rows > MOST_ACROSS * wide and wide != BLOCK_ROWS[-1]:
                continue
            busy = busy_share(sweeps, rows, (deep, wide), skew, threads)
            near = 1.0 if (wide + skew) * row_bytes <= target.l2 else OVERFULL
            time = (near + FAR * (1 / deep + skew / wide)) / (threads * busy)
            found.append(Blocks(deep, wide, time, (1 + FAR) / threads, busy))
    return min(found, key=lambda b: (b.time, -b.sweeps, b.rows))


def busy_share(sweeps: int, rows: int, block: tuple[int, int], skew: int, threads: int) -> float:
    """The share of the threads' time in which they work, when they go from diagonal to diagonal together."""
    deep, wide = block
    rows = min(rows, MOST_ACROSS * wide)
    work: dict[int, list[float]] = {}  # of the blocks of each diagonal
    for b in range(min(-(-sweeps // deep), MOST_BLOCKS)):
        ends = [skew * deep * b, skew * (deep * (b + 1) - 1)]  # first rows of the first sweep and of the last
        for c in range(ends[0] // wide, (ends[1] + rows - 1) // wide + 1):
            inside = (min(e + rows, wide * (c + 1)) - max(e, wide * c) for e in (*ends, sum(ends) // 2))
            work.setdefault(b + c, []).append(sum(max(n, 0) for n in inside))
    spent = sum(max(sum(blocks) / threads, *blocks) for blocks in work.values())
    return sum(map(sum, work.values())) / (threads * spent)


def lines_in_set(row_bytes: int, rows: int) -> int:
    """Lines of the L1 set that most of the elements below each other in so many rows are in."""
    places = [r * row_bytes % WAY // CACHE_LINE for r in range(rows)]
    return max(map(places.count, places))


def rows_of(row_bytes: int, target: Target) -> int:
    """Rows of a block that fills half of L2, within its bounds."""
    return max(LEAST_ROWS, min(MOST_ROWS, target.l2 // 2 // row_bytes))
