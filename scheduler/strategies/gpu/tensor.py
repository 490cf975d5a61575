"""Contractions of 16-bit floats (or f32, rounded to tf32 where the target allows it) for tensor cores.

Who computes what follows the instruction: `mma.sync` m16n8k16 multiplies 16 x 16 by 16 x 8 elements with the 32 threads
of a warp (tf32: m16n8k8, twice); thread 4 g + q has the results in rows g and g + 8, columns 2 q and 2 q + 1. With four
threads q along x, eight g along y and the warps along z, that is a binding of loops like any other: the tree says who
computes which element, and `polyc.emit.gpu.passes.tensor_cores` finds the instruction in the loops that come of it.
"""

from __future__ import annotations

from polyc.poly.expr import Var
from polyc.poly.forms.layout_maps import in_order, stored
from polyc.poly.scop import Scop, Statement
from polyc.poly.target import MMA_COLUMNS, MMA_DEPTH, MMA_HALF, MMA_ROWS, TF32, GpuTarget, mma_feature
from polyc.poly.tree import Layout
from polyc.scheduler.cost.gpu_tiles import DEEP, SHALLOW, TENSOR_COLUMNS, TENSOR_THREAD, WARP_ROWS, WARPS
from polyc.scheduler.programs.block_tiles import BlockTile, BlockTiling
from polyc.scheduler.programs.tiles import Kept, Part
from polyc.scheduler.recognition.contraction import Contraction, Operand, extent

SHAPE = "mma.m16n8k16"  # the feature of a target


def tensor_tile(scop: Scop, c: Contraction, rows: str, columns: str, depth: str, target: GpuTarget) -> BlockTile | None:
    """The block tile for tensor cores, None if they cannot do this contraction."""
    types = {op.load.dtype.name for op in c.operands}
    single = types == {"f32"}
    wanted = {SHAPE, *map(mma_feature, types), *([TF32] if single else [])}
    if len(types) != 1 or not wanted <= set(target.features) or not scop.reassociate:
        return None
    if scop.arrays[c.update.array].dtype.name != "f32" or c.inner != (depth,):
        return None
    for op in c.operands:
        own = rows if rows in op.own else columns
        plain = [e.name for e in op.load.index if isinstance(e, Var)]
        if own not in plain or depth not in plain or len(op.load.index) != len(set(plain)):
            return None
    n = extent(c.update, depth)
    deep = DEEP if not single and n is not None and n % DEEP == 0 else SHALLOW
    return BlockTile(WARP_ROWS * WARPS, TENSOR_COLUMNS, deep, *TENSOR_THREAD, tensor=True)


class TensorTiling(BlockTiling):
    """The loops and buffers of one contraction on tensor cores.

    Rows are cut into blocks, warps, products of 16, halves of 8 and threads; columns into blocks, products of 8, pairs.
    """

    def cuts(self) -> dict[str, tuple[int, ...]]:
        deep = self.tile.depth
        return {
            self.chosen.rows: (WARP_ROWS * WARPS, WARP_ROWS, MMA_ROWS, MMA_HALF),
            self.chosen.columns: (self.tile.columns, MMA_COLUMNS, 2),
            self.chosen.depth: (deep, MMA_DEPTH) if deep > MMA_DEPTH else (deep,),
        }

    def threads(self) -> list[Part]:
        rows, columns = self.chosen.rows, self.chosen.columns
        return [Part(rows, 1, "thread.z"), Part(rows, 4, "thread.y"), Part(columns, 2, "thread.x")]

    def points(self) -> list[Part]:
        rows, columns = self.chosen.rows, self.chosen.columns
        return [Part(o, level, "unroll") for o, level in ((rows, 2), (columns, 1), (rows, 3), (columns, 3))]

    def inner(self) -> list[Part]:
        """Panels; in each products, of 16 elements of the reduction."""
        depth = self.chosen.depth
        step, last = ([Part(depth, 1)], 2) if self.tile.depth > MMA_DEPTH else ([], 1)
        return [Part(depth), *step, *self.points(), Part(depth, last)]

    def panels(self) -> list[Kept]:
        return [self.panel(op) for op in self.panelled()]

    def panel_layout(self, operand: Operand) -> Layout | None:
        """Rows of the left panel run along the reduction, of the right one across it."""
        left = operand is self.chosen.left
        names = [self.chosen.rows, self.chosen.depth] if left else [self.chosen.depth, self.chosen.columns]
        last = [operand.load.index.index(Var(n)) for n in names]
        order = [d for d in range(len(operand.load.index)) if d not in last] + last
        return None if order == sorted(order) else in_order(order)

    def tile_layout(self, stmt: Statement) -> Layout:
        r, c = (self.dimension(stmt, o) for o in (self.chosen.rows, self.chosen.columns))
        rest = [f"i{k}" for k in range(len(stmt.index)) if k not in (r, c)]
        tile = f"floor(i{r}/{MMA_ROWS})", f"floor(i{c}/{MMA_COLUMNS})"
        return stored(len(stmt.index), *rest, *tile, f"floor(i{r}/{MMA_HALF}) mod 2", f"i{c} mod 2")
