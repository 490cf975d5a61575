"""How many steps of an elimination make a block, and the register tile of the product beyond it."""

from __future__ import annotations

from math import lcm

from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.scheduler.cost.register_tile import MOST_ROWS, MOST_VECTORS, RegisterTile, efficiency, tile_fits

BLOCK = 96  # steps, where a schedule by hand does not say
JAMMED = 4  # rows of the block's columns side by side: each waits for its own divisions
LEAST_BLOCKS = 3  # of which a third of the work is beyond the first one's rows and columns
LEAST_TILES = 3  # along either side of a block
MOST_STEPS = (
    96  # of a block: its own rows and columns, which grow with it, run at half the speed of the rest (measured)
)
L1_SHARE = 5 / 8  # of L1 that a panel of both operands fills: results of a tile pass through the rest (measured)
BYTE = 8  # bits
ALIKE = 1e-3  # shares of the peak that are as good


@dataclass(frozen=True, slots=True)
class Sizes:
    """Steps in a block, and the register tile, which divides blocks of rows and of columns."""

    steps: int
    tile: RegisterTile


def block_of(bits: int, target: Target) -> Sizes:
    """The block for elements of `bits` bits: the largest of the best register tiles of which several make a block, so
    that blocks hold whole tiles only."""
    lanes = target.lanes(bits)
    found = []
    for rows in range(1, MOST_ROWS + 1):
        for vectors in range(1, MOST_VECTORS + 1):
            unit = lcm(rows, vectors * lanes)
            if not tile_fits(rows, vectors, target) or unit > MOST_STEPS // LEAST_TILES:
                continue
            share = efficiency(None, None, (rows, vectors, lanes), target)
            most = min(MOST_STEPS, int(target.l1 * L1_SHARE) // ((rows + vectors * lanes) * bits // BYTE))
            found.append(Sizes(max(unit, most // unit * unit), RegisterTile(rows, vectors, lanes, share)))
    return max(found, key=lambda x: (round(x.tile.efficiency / ALIKE), x.tile.rows * x.tile.vectors, x.tile.rows))
