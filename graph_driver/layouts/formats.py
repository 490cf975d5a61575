"""Formats of images between kernels: as the model has them, channels last, or channels in blocks.

A format is a layout of the tensor's own dimensions (`poly.rewriting.relayout`), so every array that shows the same
memory in another shape knows its own subscripts, and the padding of a last block is part of the stored shape.
"""

from __future__ import annotations

from math import prod

from polyc.poly.expr import Const
from polyc.poly.records import dataclass
from polyc.poly.rewriting.channels import LAST, Channels
from polyc.poly.rewriting.stored import Layout
from polyc.poly.scop import Array
from polyc.poly.target import Target

VECTORS = 2
"""Vector registers in a block: the width of a register tile that is bound by arithmetic on every CPU."""


@dataclass(frozen=True, slots=True, order=True)
class Format:
    """`block` channels lie next to each other; 0: all, -1: the tensor is stored as it is declared."""

    block: int = -1

    @property
    def given(self) -> bool:
        """Whether nothing is changed."""
        return self.block < 0

    def __str__(self) -> str:
        return (
            "as given" if self.given else "channels last" if self.block == LAST else f"blocks of {self.block} channels"
        )

    def layout(self, rank: int) -> Layout:
        """That of a tensor (batch, channels, space...) of this rank."""
        return Channels(1, self.block).layout(rank)


GIVEN, CHANNELS_LAST = Format(), Format(LAST)


def blocked(target: Target, bits: int) -> Format:
    """Blocks as wide as the vectors of a register tile."""
    return Format(VECTORS * target.lanes(bits))


def channel_dimension(array: Array, shape: tuple[int, ...]) -> int | None:
    """The dimension of an array that runs over the channels of the tensor (batch, channels, space...) that it shows;
    None when it has none of its own (channels and batch in one, groups)."""
    extents = [int(e.value) for e in array.shape if isinstance(e, Const)]
    if len(extents) != len(array.shape):
        return None
    batch, channels, *space = shape
    for k, n in enumerate(extents):
        if n == channels and prod(extents[k + 1 :]) == prod(space) and prod(extents[:k]) == batch:
            return k
    return None
