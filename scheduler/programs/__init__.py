"""Schedule programs: what to do with a kind of nest, as functions from a schedule to a schedule by public steps.

`tile_product`, `block_factorization`, `block_columns`, `distribute_all`, `share_blocks`, `row_lanes`, `rows_per_block`,
`scan_panels`, `keep_rows`, `time_tiles`, `interleave_sweeps`, `partial_sums` and `gather_sums` are for everybody: they
take names of loops, statements and arrays, and numbers. The strategies use the same programs with what they have
matched as plain data (`TiledProduct`, `SharedBlocks`); nothing in them decides anything.
"""

from polyc.scheduler.programs.blocks import share_blocks
from polyc.scheduler.programs.columns import block_columns
from polyc.scheduler.programs.distribution import distribute_all
from polyc.scheduler.programs.factorization import block_factorization
from polyc.scheduler.programs.gathering import gather_sums, partial_sums
from polyc.scheduler.programs.product import tile_product
from polyc.scheduler.programs.row_lanes import row_lanes
from polyc.scheduler.programs.rows import keep_rows, rows_per_block
from polyc.scheduler.programs.scans import scan_panels
from polyc.scheduler.programs.sweeps import interleave_sweeps, time_tiles

__all__ = [
    "block_columns",
    "block_factorization",
    "distribute_all",
    "gather_sums",
    "interleave_sweeps",
    "keep_rows",
    "partial_sums",
    "row_lanes",
    "rows_per_block",
    "scan_panels",
    "share_blocks",
    "tile_product",
    "time_tiles",
]
