"""Cutting loops into blocks: `split strip_mine tile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from scheduler import tiling
from scheduler.core import Core, as_list


class Blocks(Core):
    """Part of `Schedule`."""

    def split(self, loop: str, size: int) -> Self:
        """Cut a loop into blocks.

        Arguments: `loop`; `size`, iterations in a block.
        Before -> after: `i` -> `i.out` (number of the block), `i.in` (0 .. size-1).
        Refused when: the loop's bounds depend on data.
        """
        tree = tiling.split(self.scop, self.tree, loop, size)
        return self._step("split", {"loop": loop, "size": size}, tree, "none")

    def strip_mine(self, loop: str, size: int) -> Self:
        """Cut a loop into strips and keep its values.

        Arguments: `loop`; `size`, iterations in a strip.
        Before -> after: `i` -> `i.out` (number of the strip), `i.in` (the values of `i` in it).
        Refused when: the loop's bounds depend on data.
        """
        tree = tiling.strip_mine(self.scop, self.tree, loop, size)
        return self._step("strip_mine", {"loop": loop, "size": size}, tree, "none")

    def tile(self, loops: Sequence[str], sizes: Sequence[int]) -> Self:
        """Cut neighbouring nested loops into blocks and run block by block.

        Arguments: `loops`; `sizes`, one each. Statements between the loops are sunk into them.
        Before -> after: `i, j` -> `i.out, j.out, i.in, j.in`.
        Refused when: a dependence runs backwards between blocks, or bounds depend on data.
        """
        loops, sizes = as_list(loops), list(sizes)
        return self._step("tile", {"loops": loops, "sizes": sizes}, tiling.tile(self.scop, self.tree, loops, sizes))
