"""What two products with nothing between them but points (layers of a perceptron) move block by block, and apart.

Apart, what the first one makes is written and read once more from L3 where it does not stay in L2. Block by block it
stays, but every block of rows reads both right operands again: from L2 where half of it holds them, else from L3.
"""

from __future__ import annotations

from math import prod

from polyc.poly.expr import variables
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.model import nominal
from polyc.scheduler.recognition.chains import Chain, iterations, operands
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.recognition.group import Group


@dataclass(frozen=True)
class Traffic:
    """Bytes handed on from the first product to the second, and of the right operands; `blocks` of rows. Cycles that
    blocks save, and that they cost."""

    handed: int
    right: int
    blocks: int
    saved: float
    lost: float


def traffic(scop: Scop, chain: Chain, rows: int, target: Target) -> Traffic | None:
    """Of blocks of so many rows; None where sizes decide."""
    outputs = chain.first.contraction.outputs
    counts = [iterations(chain.first, o) for o in outputs]
    right = [_operand_bytes(group) for group in (chain.first, chain.second)]
    if None in counts or None in right:
        return None
    handed = prod(n or 0 for n in counts) * scop.arrays[chain.scores].dtype.bytes
    blocks = -(-(counts[-2] or 0) // rows)
    machine, both = nominal(target), sum(n or 0 for n in right)
    each = machine.read["l2" if both <= target.l2 // 2 else "l3"]
    saved = 0.0 if handed <= target.l2 else handed * (1 / machine.read["l3"] + 1 / machine.write["l3"])
    return Traffic(handed, both, blocks, saved, (blocks - 1) * both / each)


def _operand_bytes(group: Group) -> int | None:
    """Of the operand that moves with the columns."""
    c, load = group.contraction, operands(group)[1].load
    moving = set().union(*(variables(e) for e in load.index))
    counts = [extent(c.update, i) for i in (*c.outputs, *c.inner) if i in moving]
    return None if None in counts else prod(n or 0 for n in counts) * load.dtype.bytes
