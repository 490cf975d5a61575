"""Contractions of 16-bit floats (or f32, rounded to tf32 where the target allows it) for tensor cores.

Who computes what follows the instruction: `mma.sync` m16n8k16 multiplies 16 x 16 by 16 x 8 elements with the 32 threads
of a warp (tf32: m16n8k8, twice); thread 4 g + q has the results in rows g and g + 8, columns 2 q and 2 q + 1. With four
threads q along x, eight g along y and the warps along z, that is a binding of loops like any other: the tree says who
computes which element, and `polyc.emit.gpu.tensor` finds the instruction in the loops that come of it.
"""

from __future__ import annotations

from polyc.poly.expr import Var, loads
from polyc.poly.scop import Scop, Statement
from polyc.poly.target import TF32, GpuTarget, mma_feature
from polyc.poly.tree import Band, Layout, Leaf, Member, Node, Promote
from polyc.scheduler.strategies.contractions.group import used_outside
from polyc.scheduler.strategies.contractions.recognise import Contraction, Operand, extent
from polyc.scheduler.strategies.gpu.tiles import BlockTile, Maker

SHAPE = "mma.m16n8k16"  # the feature of a target
WARP_ROWS, WARPS = 32, 4
DEEP, SHALLOW = 32, 16  # elements of the reduction in a panel: two products, or one (f32, or no multiple of two)


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
    return BlockTile(WARP_ROWS * WARPS, 64, deep, 16, 4, tensor=True)


class TensorMaker(Maker):
    """Builds the tree of one contraction."""

    def threads(self) -> list[Member]:
        rows, columns = self.chosen.rows, self.chosen.columns
        return [
            self.member(f"{rows}.warp", rows, (WARP_ROWS * WARPS, WARP_ROWS), "thread.z"),
            self.member(f"{rows}.thread", rows, (8, 1), "thread.y"),
            self.member(f"{columns}.thread", columns, (8, 2), "thread.x"),
        ]

    def points(self, stmt: Statement) -> Band:
        return Band(tuple(self.places(stmt)), Leaf(), permutable=True)

    def places(self, stmt: Statement) -> list[Member]:
        """The loops over a thread's results."""
        rows, columns = self.chosen.rows, self.chosen.columns
        cuts = {
            f"{rows}.tile": (rows, (WARP_ROWS, 16)),
            f"{columns}.tile": (columns, (self.tile.columns, 8)),
            f"{rows}.half": (rows, (16, 8)),
            f"{columns}.in": (columns, (2, 1)),
        }
        return [self.member(f"{n}@{stmt.name}", o, cut, "unroll", None, stmt) for n, (o, cut) in cuts.items()]

    def inside_panels(self, node: Node) -> Node:
        """The products of one panel, each of 16 elements of the reduction."""
        update, depth = self.update, self.chosen.depth
        cut = self.tile.depth
        step = [self.reduction_member(f"{depth}.step", depth, (cut, 16))] if cut > 16 else []
        lane = self.reduction_member(f"{depth}.in", depth, (16, 1))
        return Band((*step, *self.places(update), lane), Leaf(), permutable=True)

    def panel_layout(self, operand: Operand) -> Layout | None:
        """Rows of the left panel run along the reduction, of the right one across it."""
        left = operand is self.chosen.left
        names = [self.chosen.rows, self.chosen.depth] if left else [self.chosen.depth, self.chosen.columns]
        last = [operand.load.index.index(Var(n)) for n in names]
        order = [d for d in range(len(operand.load.index)) if d not in last] + last
        return None if order == sorted(order) else tuple((d, 1, 0) for d in order)

    def in_registers(self, array: str, node: Node) -> Node:
        stmt = next(s for s in self.group.statements() if s.array == array)
        names = self.group.iters[stmt.name]
        r, c = (stmt.index.index(Var(names[o])) for o in (self.chosen.rows, self.chosen.columns))
        rest = [(k, 1, 0) for k in range(len(stmt.index)) if k not in (r, c)]
        layout = (*rest, (r, 16, 0), (c, 8, 0), (r, 8, 2), (c, 1, 2))
        first = self.group.statements()[0]
        reads_old = first.reduction is not None or any(load.array == array for load in loads(first.value))
        copy_in = array == self.update.array and (not self.group.before or reads_old)
        return Promote(
            array, f"{array}_tile", "register", node, layout, copy_in, used_outside(self.scop, self.group, array)
        )
