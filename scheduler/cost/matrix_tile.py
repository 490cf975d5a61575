"""Tiles of a contraction for machines that multiply whole matrices (AMX; `Target.matrix`).

A step of the reduction multiplies up to `MATRIX_ROWS` rows of words by as many columns, once for each matrix of sums.
It takes as long as the slowest of: the products, which need a cycle for each row (`Target.matrix_cycles`); the lines of
their operands, from L1 or L2; a product's latency where there are few sums (Intel 64 and IA-32 Architectures
Optimization Reference Manual, chapter 20). Sums lie in memory before and after.
"""

from __future__ import annotations

from functools import cache

from polyc.poly.records import dataclass
from polyc.poly.target import MATRIX_REGISTERS, MATRIX_ROWS, MATRIX_WORDS, Target
from polyc.scheduler.cost.register_tile import LOADS_PER_CYCLE, RegisterTile

LATENCY = 52  # cycles of a product whose sums the next one needs (Intel's manual, table 20-3)
WORD = 4  # bytes
LINE = 64  # bytes of a row of a matrix register
L2_BYTES = 32  # a cycle, whole lines (measured on Emerald Rapids beside products)
ROW_TOUCHED = 4  # cycles for the line of the result that a row of the tile ends in, from L2 and back
ROW_MOVES = 2  # cycles for a row of sums that is filled, loaded, stored and read again, beside what it is filled with
CALL = 60  # cycles of a tile for what is done once: shapes, the first loads and the last products wait for each other
LEAST_DEPTH = 4  # words that are multiplied at once: fewer are a vector's work
MATRIX_GAIN = 1.0  # of the vector units' peak that a tile must pass
MOST_PARTS = 4  # of sums in registers


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """`tile` of sums, `depth` words of the reduction at once; `tile.efficiency` is in terms of the vector units' peak,
    which it passes. `blocks`: lines of rows in a tile, where rows of one line are few."""

    tile: RegisterTile
    depth: int
    blocks: int = 1


def depth_of(words: int) -> int | None:
    """How many of so many words that lie side by side are multiplied at once: a divisor, so that no rest is left."""
    found = next(d for d in range(MATRIX_WORDS, 0, -1) if words % d == 0)
    return found if found >= LEAST_DEPTH else None


def _parts(size: int, most: int) -> int:
    return -(-size // most)


def fits(blocks: int, rows: int, columns: int) -> bool:
    """Whether the sums of a tile, the parts of the operand that has fewer and two of the other have registers."""
    high, wide = blocks * _parts(rows, MATRIX_ROWS), _parts(columns, MATRIX_WORDS)
    several = blocks > 1 or rows > MATRIX_ROWS if high >= wide else wide > 1
    ends = several and (rows > MATRIX_ROWS and rows % MATRIX_ROWS if high >= wide else columns % MATRIX_WORDS)
    return high * wide <= MOST_PARTS and high * wide + min(high, wide) + (2 if ends else 1) <= MATRIX_REGISTERS


def _tile_cycles(blocks: int, rows: int, columns: int, depth: int, steps: int, far: bool, target: Target) -> float:
    """Cycles of one tile of so many rows and columns; `far`: its rows come from L2."""
    high, wide, total = blocks * _parts(rows, MATRIX_ROWS), _parts(columns, MATRIX_WORDS), blocks * rows
    products = total * wide * target.matrix_cycles / MATRIX_ROWS
    panel = depth * wide * LINE
    moved = (total * LINE if far else 0) + (panel if steps * panel > target.l1 // 2 else 0)
    near = (total + depth * wide) / LOADS_PER_CYCLE
    step = max(products, near, moved / L2_BYTES, LATENCY if high * wide == 1 else 0.0)
    return steps * step + total * (wide * ROW_MOVES + ROW_TOUCHED) + CALL


def _cut(size: int, tile: int) -> list[tuple[int, int]]:
    """Sizes of tiles and how many there are."""
    return [(n, many) for n, many in ((tile, size // tile), (size % tile, 1)) if n and many]


@cache
def choose_matrix_tile(
    lines: int, rows: int, columns: int, words: int, depth: int, lanes: int, target: Target
) -> MatrixTile:
    """The tile for `lines` of `rows` x `columns` sums of `words` words, `depth` of them at once."""
    best: MatrixTile | None = None
    steps, far = words // depth, lines * rows * words * WORD > target.l1 // 2
    for wide in range(1, MOST_PARTS + 1):
        for high in range(1, min(rows, MOST_PARTS * MATRIX_ROWS) + 1):
            for blocks in range(1, min(lines, MOST_PARTS) + 1 if high == rows else 2):
                width = wide * MATRIX_WORDS
                if not fits(blocks, high, width) or (wide > 1 and width >= columns + MATRIX_WORDS):
                    continue
                cycles = sum(
                    many * more * most * _tile_cycles(b, h, w, depth, steps, far, target)
                    for b, many in _cut(lines, blocks)
                    for h, more in _cut(rows, high)
                    for w, most in _cut(columns, width)
                )
                share = lines * rows * columns / lanes * words / target.fma_units / cycles
                if best is None or share > best.tile.efficiency:
                    best = MatrixTile(RegisterTile(high, width // lanes, lanes, share), depth, blocks)
    assert best is not None
    return best
