"""What a chain of two products (attention) moves as one kernel, and as three.

A product reads its left operand once for each tile of columns, its right one once for each tile of rows. In one kernel
the scores stay in the block; of three, the first writes them, the passes over rows read and write them, the last
reads them. One kernel has fewer rows in a block, so it reads right operands more often.
"""

from __future__ import annotations

from math import prod

from polyc.poly.records import dataclass
from polyc.scheduler.cost.gpu_tiles import UNKNOWN
from polyc.scheduler.recognition.chains import Chain, operands, row_operand
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.recognition.group import Group
from polyc.scheduler.strategies.gpu.contraction import choose
from polyc.scheduler.strategies.gpu.plan import GpuPlan


@dataclass(frozen=True)
class Moved:
    """Bytes: of the `scores` of all heads (written once), of `joined` as one kernel, of what is `apart` as three."""

    scores: int
    joined: int
    apart: int

    def pays(self, l2: int) -> bool:
        """Whether one kernel moves less; scores that leave an L2 cache of this size cost far more than the reads of
        operands, which lie there."""
        return self.scores > l2 or self.joined <= self.apart


def moved(plan: GpuPlan, chain: Chain, rows: int, columns: tuple[int, int]) -> Moved | None:
    """What blocks of `rows` move, with tiles of so many columns in the two products; None where three kernels have no
    tiles to compare with."""
    first, second = chain.first, chain.second
    tiles = [choose(plan.scop, g, plan.target) for g in (first, second)]
    scores = _count(first, first.contraction.outputs)
    bytes_of = plan.scop.arrays
    made, used = (bytes_of[a].dtype.bytes for a in (chain.scores, row_operand(second).load.array))
    joined = _left(first, columns[0]) + sum(_right(g, rows) for g in (first, second))
    apart = 2 * scores * made + scores * used
    for group, chosen in zip((first, second), tiles, strict=True):
        if isinstance(chosen, str):
            return None
        apart += _left(group, chosen.tile.columns) + _right(group, chosen.tile.rows)
    return Moved(scores * made, joined, apart)


def _left(group: Group, columns: int) -> int:
    """Bytes of the operand that moves with the rows, in tiles of so many columns."""
    c = group.contraction
    once = _count(group, (*c.outputs[:-1], c.inner[0])) * operands(group)[0].load.dtype.bytes
    return once * -(-_count(group, c.outputs[-1:]) // columns)


def _right(group: Group, rows: int) -> int:
    """Bytes of the operand that moves with the columns, in tiles of so many rows."""
    c = group.contraction
    once = _count(group, (*c.outputs[:-2], c.outputs[-1], c.inner[0])) * operands(group)[1].load.dtype.bytes
    return once * -(-_count(group, c.outputs[-2:-1]) // rows)


def _count(group: Group, names: tuple[str, ...]) -> int:
    """The iterations of these loops."""
    return prod(extent(group.contraction.update, n) or UNKNOWN for n in names)
