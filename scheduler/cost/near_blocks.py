"""When nests run block by block, so that what one leaves for the next stays in L2.

Bytes handed on in all, the blocks they are made in, and those of operands that every block reads again: where a block's
share of the first fits, blocks save a way to L3 and back for all of them, and cost the way from L3 for the last.
"""

from __future__ import annotations

from polyc.poly.target import Target
from polyc.scheduler.cost.model import nominal

NEAR = 0.75  # of L2 for what a block hands on; the rest is for the operand that comes again


def near_bytes(target: Target) -> int:
    """The most that one block may hand on."""
    return int(target.l2 * NEAR)


def saved(handed: int, target: Target) -> float:
    """Cycles of L3 that blocks save."""
    machine = nominal(target)
    return handed * (1 / machine.read["l3"] + 1 / machine.write["l3"])


def lost(blocks: int, again: int, target: Target) -> float:
    """Cycles that reading operands again for each block takes; half of L2 holds them without."""
    return 0.0 if again <= target.l2 // 2 else (blocks - 1) * again / nominal(target).read["l3"]


def saves(handed: int, blocks: int, again: int, target: Target) -> bool:
    """Whether blocks pay."""
    return saved(handed, target) > lost(blocks, again, target)
