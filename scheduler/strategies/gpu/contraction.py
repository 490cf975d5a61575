"""Strategy: contractions on a GPU, in block tiles, thread tiles and panels in shared memory.

    for blocks of rows, of columns
      for threads of rows, of columns        (each with a tile of its own)
        promote C to registers
          C tile = init
          for k.out
            promote panels of A and B to shared memory, filled by all threads of the block
              for k.in
                promote a column of A's panel and a row of B's to registers
                  C tile += A column * B row
          epilogue statements on the tile

The structure of SGEMM on GPUs since Volkov & Demmel, "Benchmarking GPUs to tune dense linear
algebra" (SC 2008), for any contraction found in a Scop. Nothing here is trusted: the caller checks legality.
"""

from __future__ import annotations

from math import prod
from typing import Any

from polyc.poly.expr import Var
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget
from polyc.scheduler.cost.gpu_tiles import BLOCK_TILES, CHANNEL_THREADS, PIXEL_THREADS, SMALLEST, UNKNOWN, registers
from polyc.scheduler.programs.block_tiles import BlockTile, BlockTiling, TiledContraction
from polyc.scheduler.recognition.contraction import Contraction, extent
from polyc.scheduler.recognition.group import Group, group_nests
from polyc.scheduler.strategies.contractions.strategy import arranged, top_filters
from polyc.scheduler.strategies.gpu.convolution import (
    Convolution,
    ConvolutionTiling,
    convolution,
)
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.gpu.tensor import TensorTiling, tensor_tile

TILES = tuple(BlockTile(*sizes) for sizes in BLOCK_TILES)


def gpu_contractions(plan: GpuPlan) -> None:
    """Tile the top-level nests that hold a contraction (and the pointwise nests after it)."""
    position = 0
    while position < len(top_filters(plan)):
        found = group_nests(plan.scop, [list(f.domain) for f in top_filters(plan)], position)
        if found is not None:
            _propose(plan, found[0])
        position += 1


def _propose(plan: GpuPlan, group: Group) -> None:
    update = group.contraction.update
    windowed = convolution(plan.scop, group, plan.target)
    if windowed is not None and _tiled(plan, ConvolutionTiling(plan.scop, windowed), _convolved(windowed), {}):
        return
    chosen = choose(plan.scop, group, plan.target)
    if isinstance(chosen, str):
        plan.decline(f"contraction {update.name}", "no block tile", chosen)
        return
    t = chosen.tile
    text = (
        f"contraction {update.name}: block tile {t.rows} ({chosen.rows}) x {t.columns} ({chosen.columns}) x {t.depth} "
        f"({chosen.depth}), {t.threads} threads with {t.thread_rows} x {t.thread_columns}"
        + (" by tensor cores" if t.tensor else "")
    )
    figures: dict[str, Any] = {"threads": t.threads, "rows": t.rows, "columns": t.columns, "depth": t.depth}
    _tiled(plan, (TensorTiling if t.tensor else BlockTiling)(plan.scop, chosen), text, figures)


def _tiled(plan: GpuPlan, tiling: BlockTiling, text: str, figures: dict[str, Any]) -> bool:
    """Tile the nests of a contraction; whether it was accepted."""
    product = tiling.product()
    done = plan.attempt(f"contraction {product.update}", text, arranged(product), **figures)
    if done:
        plan.claimed |= set(product.statements)
    return done


def _convolved(c: Convolution) -> str:
    t, update = c.tile, c.group.contraction.update
    high, wide = t.size
    return (
        f"contraction {update.name}: convolution in blocks of {t.rows} ({c.channels}) x {high} x {wide} ({c.height}, "
        f"{c.width}) x {t.depth} ({c.depth}), "
        f"{PIXEL_THREADS * CHANNEL_THREADS} threads with {t.channels} x {t.high} x {t.wide}"
    )


def choose(scop: Scop, group: Group, target: GpuTarget) -> TiledContraction | str:
    """The tile for a contraction, or why it gets none."""
    c = group.contraction
    if c.sweep:
        return "one operand: nothing to use again"
    if not all(op.own for op in c.operands):
        return "an operand moves with all outputs: no reuse to bring into shared memory"
    columns = _columns(c)
    right = next(op for op in c.operands if columns in op.own)
    left = next(op for op in c.operands if op is not right)
    rows = max(left.own, key=lambda o: extent(c.update, o) or UNKNOWN)
    depth = max(c.inner, key=lambda o: extent(c.update, o) or UNKNOWN)
    sizes = {o: extent(c.update, o) or UNKNOWN for o in (rows, columns, depth)}
    if min(sizes.values()) < SMALLEST:
        return f"a loop of fewer than {SMALLEST} iterations"
    by_warps = tensor_tile(scop, c, rows, columns, depth, target)
    if by_warps is not None:
        return TiledContraction(group, left, right, rows, columns, depth, by_warps)
    many = prod(extent(c.update, o) or UNKNOWN for o in c.outputs if o not in (rows, columns))
    for tile in TILES:
        blocks = many * -(-sizes[rows] // tile.rows) * -(-sizes[columns] // tile.columns)
        fits = _panel_bytes(c, tile, depth) <= target.shared_static and tile.threads <= target.max_threads
        fits &= _registers(scop, group, tile) <= min(target.registers, target.block_registers // tile.threads)
        enough = blocks >= target.sms or tile is TILES[-1]
        if fits and enough and (tile is TILES[-1] or min(sizes[rows], sizes[columns]) >= tile.rows // 2):
            return TiledContraction(group, left, right, rows, columns, depth, tile)
    return f"panels of over {target.shared_static} bytes of shared memory or tiles of over {target.registers} registers"


def _columns(c: Contraction) -> str:
    """The output along which C is contiguous, if an operand alone moves with it."""
    own = [o for op in c.operands for o in op.own]
    last = c.update.index[-1]
    return last.name if isinstance(last, Var) and last.name in own else own[-1]


def _registers(scop: Scop, group: Group, tile: BlockTile) -> int:
    """Of 32 bits, for each thread: the tiles of C and of what follows it, a column and a row of the panels."""
    update = group.contraction.update
    kept = {update.array, *(s.array for s in group.after if scop.arrays[s.array].kind == "local")}
    tiles = sum(tile.thread_rows * tile.thread_columns * scop.arrays[a].dtype.bytes for a in kept)
    panels = (tile.thread_rows + tile.thread_columns) * scop.arrays[update.array].dtype.bytes
    return registers(tiles + panels)


def _panel_bytes(c: Contraction, tile: BlockTile, depth: str) -> int:
    """What both panels take, one element more a row, if every operand moves by single elements."""
    others = prod(extent(c.update, o) or UNKNOWN for o in c.inner if o != depth)
    return sum((tile.rows + 1) * tile.depth * others * op.load.dtype.bytes for op in c.operands)
