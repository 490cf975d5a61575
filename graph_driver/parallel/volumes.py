"""How many bytes all ranks send in a message, as a formula of sizes and of the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from polyc.graph_driver.parallel.layouts import Range
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Volume:
    """`factor * (p - 1) * (sum of rows) * (extents of axes) * nbytes / p` bytes for p ranks.

    `others`: with the factor p - 1. `shared`: divided by p. `rows`: elements along the axes that are not in `axes`,
    counted from access relations, for each rank, or, with `others`, for each border between two ranks; empty: 1.
    `axes`: which axes of the tensor count in full; their extents are n0, n1, ... in the text.
    """

    factor: int = 0
    others: bool = False
    rows: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    nbytes: int = 1
    shared: bool = False

    def __call__(self, ranks: int, shape: Sequence[int]) -> int:
        """Bytes, for so many ranks and a tensor of that shape."""
        found = self.factor * self.nbytes * prod(shape[a] for a in self.axes)
        found *= ranks - 1 if self.others else 1
        found *= sum(self.rows) if self.rows else 1
        return found // ranks if self.shared else found

    def __str__(self) -> str:
        if not self.factor or (self.rows and not any(self.rows)):
            return "0"
        terms = [str(self.factor)] if self.factor != 1 else []
        terms += ["(p - 1)"] if self.others else []
        if self.rows:
            terms.append(str(self.rows[0]) if len(self.rows) == 1 else f"({' + '.join(map(str, self.rows))})")
        terms += [f"n{a}" for a in self.axes]
        return " * ".join([*terms, str(self.nbytes)]) + (" / p" if self.shared else "")

    def text(self, shape: Sequence[int]) -> str:
        """With the extents of its axes."""
        known = ", ".join(f"n{a} = {shape[a]}" for a in self.axes)
        return f"{self} with {known}" if known and self.factor else str(self)


def of_halos(have: Sequence[Range], need: Sequence[Range], extent: int) -> tuple[bool, tuple[int, ...]]:
    """Indices of an axis that ranks lack, as `others` and `rows` of a volume: of each border between two ranks where
    all parts are alike (each rank needs its own and as many more below and above, as far as there are any), else of
    each rank."""
    lacking = tuple(max(0, y - x) - max(0, min(b, y) - max(a, x)) for (a, b), (x, y) in zip(have, need, strict=True))
    below = max(a - x for (a, _), (x, _) in zip(have, need, strict=True))
    above = max(y - b for (_, b), (_, y) in zip(have, need, strict=True))
    alike = below >= 0 and above >= 0 and all(
        (x, y) == (max(0, a - below), min(extent, b + above)) and b - a >= max(below, above)
        for (a, b), (x, y) in zip(have, need, strict=True)
    )  # fmt: skip
    return (True, (below + above,)) if alike else (False, lacking)
