"""Tiles of contractions on a GPU, and the trees that are made of them."""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from polyc.poly.expr import Var, loads
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Layout, Leaf, LoopKind, Member, Node, Promote, loop_dim
from polyc.poly.tree import Sequence as InOrder
from polyc.scheduler.strategies.contractions.group import Group, used_outside
from polyc.scheduler.strategies.contractions.recognise import Operand, extent

LANES = 4  # neighbouring columns of a thread: one 16-byte access
UNKNOWN = 1 << 10  # what a symbolic size is taken for


@dataclass(frozen=True)
class BlockTile:
    """`rows` x `columns` of C for a block, `thread_rows` x `thread_columns` of them for a thread, and
    `depth` iterations of the reduction at once. `tensor`: by tensor cores (`gpu_tensor`)."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int
    tensor: bool = False

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows // self.thread_rows * (self.columns // self.thread_columns)


@dataclass(frozen=True)
class TiledContraction:
    """`rows` moves operand `left` alone, `columns` operand `right`; `depth` is the reduction loop that is cut."""

    group: Group
    left: Operand
    right: Operand
    rows: str
    columns: str
    depth: str
    tile: BlockTile


class Maker:
    """Builds the tree of one contraction."""

    def __init__(self, scop: Scop, chosen: TiledContraction) -> None:
        self.scop, self.chosen = scop, chosen
        self.group, self.tile = chosen.group, chosen.tile
        self.update = chosen.group.contraction.update

    def tree(self) -> Node:
        """Without the Filter."""
        node = self.parts()
        written = [self.update.array, *(s.array for s in self.group.after)]
        for array in dict.fromkeys(written):
            if self.scop.arrays[array].kind == "local" or array == self.update.array:
                node = self.in_registers(array, node)
        return Band(tuple(self.blocks()), Band(tuple(self.threads()), node))

    def blocks(self) -> list[Member]:
        """Loops over blocks, the other outputs outermost; of those only one has an axis left."""
        c, tile = self.group.contraction, self.tile
        others = [o for o in c.outputs if o not in (self.chosen.rows, self.chosen.columns)]
        longest = max(others, key=lambda o: extent(c.update, o) or UNKNOWN, default=None)
        out = [self.member(o, o, (0, 1), "block.z" if o == longest else "serial") for o in others]
        out.sort(key=lambda m: m.kind != "block.z")
        out.append(self.member(f"{self.chosen.rows}.out", self.chosen.rows, (0, tile.rows), "block.y"))
        out.append(self.member(f"{self.chosen.columns}.out", self.chosen.columns, (0, tile.columns), "block.x"))
        return out

    def threads(self) -> list[Member]:
        tile = self.tile
        across = tile.columns // tile.thread_columns * LANES
        return [
            self.member(f"{self.chosen.rows}.thread", self.chosen.rows, (tile.rows, tile.thread_rows), "thread.y"),
            self.member(f"{self.chosen.columns}.thread", self.chosen.columns, (across, LANES), "thread.x"),
        ]

    def member(self, name: str, output: str, cut: tuple[int, int], kind: LoopKind = "serial",
               factor: int | None = None, only: Statement | None = None) -> Member:  # fmt: skip
        """The loop `(output % cut[0]) // cut[1]` of all statements or one (0 = no modulo)."""
        schedule = {}
        for stmt in (only,) if only is not None else self.group.statements():
            pa = loop_dim(stmt.domain, stmt.iters.index(self.group.iters[stmt.name][output]))
            if cut[0]:
                pa = pa.mod_val(isl.Val(cut[0]))
            schedule[stmt.name] = pa.scale_down_val(isl.Val(cut[1])).floor() if cut[1] != 1 else pa
        return Member(name, schedule, kind, factor, coincident=True)

    def points(self, stmt: Statement) -> Band:
        """The thread's tile, for one statement."""
        tile, rows, columns = self.tile, self.chosen.rows, self.chosen.columns
        across = tile.columns // tile.thread_columns * LANES
        members = [self.member(f"{rows}.in@{stmt.name}", rows, (tile.thread_rows, 1), "unroll", None, stmt)]
        if tile.thread_columns > LANES:
            cut = (tile.columns, across)
            members.append(self.member(f"{columns}.part@{stmt.name}", columns, cut, "unroll", None, stmt))
        members.append(self.member(f"{columns}.in@{stmt.name}", columns, (LANES, 1), "vector", LANES, stmt))
        return Band(tuple(members), Leaf(), permutable=True)

    def parts(self) -> Node:
        filters = []
        for stmt in self.group.statements():
            child: Node = self.points(stmt)
            if stmt is self.update:
                child = self.reduction(child)
            filters.append(Filter({stmt.name: stmt.domain}, child))
        return filters[0].child if len(filters) == 1 else InOrder(tuple(filters))

    def reduction(self, node: Node) -> Node:
        """The loops of the reduction, with the panels."""
        update, depth = self.update, self.chosen.depth
        time = loop_dim(update.domain, update.iters.index(depth))
        cut = self.tile.depth
        outside = Member(f"{depth}.out", {update.name: time.scale_down_val(isl.Val(cut)).floor()})
        node = self.inside_panels(node)
        for operand in self.panelled():
            array = operand.load.array
            node = Promote(array, f"{array}_panel", "shared", node, self.panel_layout(operand), True, False)
        return Band((outside,), node)

    def panelled(self) -> list[Operand]:
        """The operands that come to shared memory in panels, the inner one first."""
        return [self.chosen.right, self.chosen.left]

    def inside_panels(self, node: Node) -> Node:
        """The iterations of one panel around the thread's tile."""
        update, depth = self.update, self.chosen.depth
        within = [Member(o, {update.name: loop_dim(update.domain, update.iters.index(o))})
                  for o in self.group.contraction.inner if o != depth]  # fmt: skip
        within.append(self.reduction_member(f"{depth}.in", depth, (self.tile.depth, 1)))
        array = self.chosen.left.load.array
        node = Promote(array, f"{array}_column", "register", node, self.panel_layout(self.chosen.left), True, False)
        return Band(tuple(within), node)

    def reduction_member(self, name: str, loop: str, cut: tuple[int, int]) -> Member:
        """The loop `(loop % cut[0]) // cut[1]` of the update."""
        time = loop_dim(self.update.domain, self.update.iters.index(loop)).mod_val(isl.Val(cut[0]))
        return Member(name, {self.update.name: time.scale_down_val(isl.Val(cut[1])).floor() if cut[1] != 1 else time})

    def panel_layout(self, operand: Operand) -> Layout | None:
        """The dimension that runs over the thread's tile innermost, so that a thread reads neighbours."""
        name = self.chosen.rows if operand is self.chosen.left else self.chosen.columns
        dims = list(range(len(operand.load.index)))
        ours = [d for d in dims if operand.load.index[d] == Var(name)]
        if len(ours) != 1 or ours[0] == dims[-1]:
            return None
        return tuple((d, 1, 0) for d in (*(d for d in dims if d != ours[0]), ours[0]))

    def in_registers(self, array: str, node: Node) -> Node:
        """The thread's tile of `array`, the columns in parts of neighbouring elements."""
        stmt = next(s for s in self.group.statements() if s.array == array)
        own = self.group.iters[stmt.name][self.chosen.columns]
        lanes = next(k for k, e in enumerate(stmt.index) if e == Var(own))
        across = self.tile.columns // self.tile.thread_columns * LANES
        rest = [(k, 1, 0) for k in range(len(stmt.index)) if k != lanes]
        parted = self.tile.thread_columns > LANES
        layout = (*rest, (lanes, across, 0), (lanes, 1, LANES)) if parted else (*rest, (lanes, 1, 0))
        first = self.group.statements()[0]
        reads_old = first.reduction is not None or any(load.array == array for load in loads(first.value))
        copy_in = array == self.update.array and (not self.group.before or reads_old)
        outside = used_outside(self.scop, self.group, array)
        return Promote(array, f"{array}_tile", "register", node, layout, copy_in, outside)
