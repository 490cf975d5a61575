"""The placement language: which part of a tensor each rank has.

WHOLE                every rank has all of it
Split(axis, bounds)  rank r has the indices bounds[r] of one axis, and all of the others; the bounds of a partition
                     touch, those of halos overlap
Partial(op)          every rank has a tensor of that shape; the tensor is their sum (max, min)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from polyc.poly.records import dataclass

Range = tuple[int, int]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Whole:
    """Every rank has all of the tensor."""

    def __str__(self) -> str:
        return "whole"


@dataclass(frozen=True)
class Split:
    """Rank r has the indices `bounds[r]` (begin, end) of the axis `axis`."""

    axis: int
    bounds: tuple[Range, ...]

    @property
    def partition(self) -> bool:
        """Whether each index is with exactly one rank."""
        return self.bounds[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(self.bounds))

    def covers(self, extent: int) -> bool:
        """Whether it is a partition of all indices, none of them empty."""
        return self.partition and self.bounds[-1][1] == extent and all(a < b for a, b in self.bounds)

    def __str__(self) -> str:
        sizes = {b - a for a, b in self.bounds}
        each = str(*sizes) if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
        return f"split axis {self.axis}, {each} each" + ("" if self.partition else ", overlapping")


@dataclass(frozen=True)
class Partial:
    """The tensor is the combination (`sum`, `max`, `min`) of what the ranks have."""

    reduce: str = "sum"

    def __str__(self) -> str:
        return f"partial {self.reduce}"


Layout = Whole | Split | Partial
WHOLE = Whole()


def balanced(axis: int, extent: int, ranks: int) -> Split:
    """Nearly equal parts of an axis."""
    return Split(axis, tuple((r * extent // ranks, (r + 1) * extent // ranks) for r in range(ranks)))


def box(layout: Layout, shape: Sequence[int], rank: int) -> tuple[Range, ...]:
    """For each axis where the rank's part begins and ends."""
    full = tuple((0, n) for n in shape)
    if not isinstance(layout, Split):
        return full
    return (*full[: layout.axis], layout.bounds[rank], *full[layout.axis + 1 :])


def elements(part: Sequence[Range]) -> int:
    """How many elements a box has."""
    total = 1
    for a, b in part:
        total *= max(0, b - a)
    return total


def common(a: Sequence[Range], b: Sequence[Range]) -> int:
    """How many elements two boxes share."""
    return elements([(max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b, strict=True)])
