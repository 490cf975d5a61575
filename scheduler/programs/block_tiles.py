"""Tiles of blocks and threads on a GPU: what they mean for the loops and arrays of a contraction."""

from __future__ import annotations

from polyc.poly.expr import Var
from polyc.poly.forms.layout_maps import in_order, stored
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Layout
from polyc.scheduler.cost.gpu_tiles import LANES, UNKNOWN
from polyc.scheduler.programs.tiles import Kept, Part, Place, TiledProduct
from polyc.scheduler.recognition.contraction import Operand, extent
from polyc.scheduler.recognition.group import Group, tile_is_filled, used_outside, written_arrays


@dataclass(frozen=True)
class BlockTile:
    """`rows` x `columns` of C for a block, `thread_rows` x `thread_columns` of them for a thread, and
    `depth` iterations of the reduction at once. `tensor`: by tensor cores (`gpu/tensor.py`)."""

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


class BlockTiling:
    """The loops and buffers of one contraction: the parameters of `tiled`.

    A block's tile is cut into those of its threads; a thread's columns are parts of LANES neighbours, `across` apart.
    """

    def __init__(self, scop: Scop, chosen: TiledContraction) -> None:
        self.scop, self.chosen = scop, chosen
        self.group, self.tile = chosen.group, chosen.tile
        self.update = chosen.group.contraction.update
        self.across = self.tile.columns // self.tile.thread_columns * LANES
        self.parted = self.tile.thread_columns > LANES

    def product(self) -> TiledProduct:
        """The program."""
        outer = (*self.blocks(), *self.threads())
        tiles = [self.register_tile(a, outer[-1].place) for a in written_arrays(self.scop, self.group)]
        return TiledProduct(
            tuple(s.name for s in self.group.statements()), self.update.name, self.group.iters, self.cuts(), outer,
            tuple(self.points()), tuple(self.inner()), (*self.panels(), *tiles),
        )  # fmt: skip

    def cuts(self) -> dict[str, tuple[int, ...]]:
        """Iterations of the blocks, of the blocks in these, ..., of each loop that is cut."""
        tile = self.tile
        columns = (tile.columns, self.across, LANES) if self.parted else (tile.columns, LANES)
        rows = (tile.rows, tile.thread_rows)
        return {self.chosen.rows: rows, self.chosen.columns: columns, self.chosen.depth: (tile.depth,)}

    def blocks(self) -> list[Part]:
        """Loops over blocks, the other outputs outermost; of those only one has an axis left."""
        c = self.group.contraction
        others = [o for o in c.outputs if o not in (self.chosen.rows, self.chosen.columns)]
        longest = max(others, key=lambda o: extent(c.update, o) or UNKNOWN, default=None)
        out = [Part(o, 0, "block.z" if o == longest else "serial") for o in others]
        out.sort(key=lambda p: p.run != "block.z")
        return [*out, Part(self.chosen.rows, 0, "block.y"), Part(self.chosen.columns, 0, "block.x")]

    def threads(self) -> list[Part]:
        """Loops over the threads of a block."""
        return [
            Part(self.chosen.rows, 1, "thread.y"),
            Part(self.chosen.columns, 2 if self.parted else 1, "thread.x"),
        ]

    def points(self) -> list[Part]:
        """Loops over a thread's tile."""
        rows, columns = self.chosen.rows, self.chosen.columns
        parts = [Part(columns, 1, "unroll")] if self.parted else []
        lanes = Part(columns, 3 if self.parted else 2, "vector", LANES)
        return [Part(rows, 2, "unroll"), *parts, lanes]

    def inner(self) -> list[Part]:
        """Loops over panels, over the reduction in a panel, and over a thread's tile."""
        depth = self.chosen.depth
        within = [Part(o) for o in self.group.contraction.inner if o != depth]
        return [Part(depth), *within, Part(depth, 1), *self.points()]

    def panels(self) -> list[Kept]:
        """Panels of the operands in shared memory, the inner one first; a column of the left one in registers."""
        left = self.chosen.left
        column = Kept(
            left.load.array, f"{left.load.array}_column", "register", self.panel_layout(left), (self.chosen.depth, 1)
        )
        return [column, *map(self.panel, self.panelled())]

    def panel(self, operand: Operand) -> Kept:
        """The panel of one operand."""
        array, at = operand.load.array, (self.chosen.depth, 0)
        return Kept(array, f"{array}_panel", "shared", self.panel_layout(operand), at)

    def panelled(self) -> list[Operand]:
        """The operands that come to shared memory in panels, the inner one first."""
        return [self.chosen.right, self.chosen.left]

    def panel_layout(self, operand: Operand) -> Layout | None:
        """The dimension that runs over the thread's tile innermost, so that a thread reads neighbours."""
        name = self.chosen.rows if operand is self.chosen.left else self.chosen.columns
        dims = list(range(len(operand.load.index)))
        ours = [d for d in dims if operand.load.index[d] == Var(name)]
        if len(ours) != 1 or ours[0] == dims[-1]:
            return None
        return in_order((*(d for d in dims if d != ours[0]), ours[0]))

    def register_tile(self, array: str, at: Place) -> Kept:
        """The thread's tile of `array`."""
        stmt = next(s for s in self.group.statements() if s.array == array)
        moves = tile_is_filled(self.group, array), used_outside(self.scop, self.group, array)
        return Kept(array, f"{array}_tile", "register", self.tile_layout(stmt), at, None, *moves)

    def tile_layout(self, stmt: Statement) -> Layout:
        """The columns in parts of neighbouring elements."""
        lanes = self.dimension(stmt, self.chosen.columns)
        rest = [f"i{k}" for k in range(len(stmt.index)) if k != lanes]
        parts = [f"floor(i{lanes}/{self.across})", f"i{lanes} mod {LANES}"] if self.parted else [f"i{lanes}"]
        return stored(len(stmt.index), *rest, *parts)

    def dimension(self, stmt: Statement, output: str) -> int:
        """Of what the statement writes, the one that an output moves along."""
        return stmt.index.index(Var(self.group.iters[stmt.name][output]))
