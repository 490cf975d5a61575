"""Tiles of products and convolutions for the blocks and threads of a GPU: which there are, and what they cost.

The structure is that of SGEMM since Volkov & Demmel, "Benchmarking GPUs to tune dense linear algebra" (SC 2008): a
thread's tile in registers, so that a product takes few loads from shared memory, and blocks that leave none of the
multiprocessors empty. The numbers are choices within what targets have; none was measured on a GPU. Sizes in elements,
memory in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.poly.target import MMA_DEPTH, MMA_ROWS, REGISTER_BYTES, WIDEST_ACCESS

LANES = WIDEST_ACCESS // REGISTER_BYTES  # neighbouring columns of a thread: one access
UNKNOWN = 1 << 10  # what a symbolic size is taken for

BLOCK_TILES = ((128, 128, 8, 8, 8), (64, 64, 16, 4, 4), (32, 32, 16, 2, 4))
"""Rows, columns and depth of a block, rows and columns of a thread: the first that leaves blocks for all
multiprocessors."""
PANEL_DEPTH = 8  # iterations of the reduction in a panel, where a schedule by hand does not say
OWN_REGISTERS = 24  # of a thread, for addresses and loops: an estimate
SMALLEST = 8  # iterations below which a dimension is not worth a tile

WARP_ROWS, WARPS = 2 * MMA_ROWS, 4
"""By tensor cores: rows of a warp (two products share the right operand), and warps of a block."""
TENSOR_COLUMNS = 64  # of a block
TENSOR_THREAD = (16, 4)  # rows and columns of a thread, all of a warp together
DEEP, SHALLOW = 2 * MMA_DEPTH, MMA_DEPTH
"""Elements of the reduction in a panel: two products, or one (f32, or no multiple of two)."""

ATTENTION_THREADS = 16  # of a row, and rows of threads
ATTENTION_ROWS = (64, 32, 16)
"""Of scores for one block; 16 without shuffles, as partial results take 16 elements of each row."""
ATTENTION_DEPTH = 16  # iterations of a reduction in a panel
ATTENTION_RESERVED = 20 * 1024  # bytes of shared memory for panels and what belongs to rows

PIXEL_THREADS = 16  # of a convolution, over the pixels of a block
CHANNEL_THREADS = 8  # and over its output channels
PARTS = (1, 2, 4, 7, 8)  # pixels of a thread along one dimension
LEAST_PIXELS, MOST_PIXELS = 4, 8  # of a thread
CHANNELS = (8, 4)  # of a thread
DEPTHS = (8, 4, 2)  # input channels of a panel
FILLING = 0.8  # how much it counts that there are blocks for all multiprocessors
NARROW = 0.97  # what a warp that reads two rows of an image is worth
LEAST_USED = 0.3  # share of a tile's work that is not thrown away
CONVOLUTION_PANELS = 24 * 1024  # bytes of both panels: two of each fit in what every target has


def pixel_tiles(depth: int) -> Iterator[tuple[int, int, int, int, int, int]]:
    """The tiles of a convolution with `depth` input channels, best first among equals: threads along the width, pixels
    of one along the width, threads along the height, pixels of one along it, output channels of one, input channels."""
    for across in (PIXEL_THREADS, PIXEL_THREADS // 2):
        for wide in PARTS:
            for high in PARTS:
                if LEAST_PIXELS <= wide * high <= MOST_PIXELS:
                    for channels in CHANNELS:
                        for deep in DEPTHS:
                            yield across, wide, PIXEL_THREADS // across, high, channels, min(deep, depth)


def tile_worth(used: float, pixels: int, channels: int, across: int, blocks: int, multiprocessors: int) -> float:
    """Work for each element fetched from shared memory, of the part of a tile that is `used` and with so many blocks
    for the multiprocessors (0: unknown); larger is better, 1 the bound."""
    reuse = pixels * channels / (pixels * channels + 2.0 * pixels + channels)
    filled = min(1.0, blocks / multiprocessors) if multiprocessors else 1.0
    return used * reuse * filled**FILLING * (1.0 if across > PIXEL_THREADS // 2 else NARROW)


def registers(elements_bytes: int) -> int:
    """Of a thread whose tiles take so many bytes."""
    return OWN_REGISTERS + elements_bytes // REGISTER_BYTES
