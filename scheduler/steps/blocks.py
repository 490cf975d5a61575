"""Cutting loops into blocks and parts: `split strip_mine unsplit tile unroll_and_jam index_split peel version`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from polyc.scheduler.core import Core
from polyc.scheduler.texts.addressing import each_loop
from polyc.scheduler.transformations import splitting, tiling, unrolling


class Blocks(Core):
    """Part of `Schedule`."""

    @each_loop
    def split(self, loop: str, size: int) -> Self:
        """Cut a loop into blocks.

        Arguments: `loop`; `size`, iterations in a block.
        Before -> after: `i` -> `i.out` (number of the block), `i.in` (0 .. size-1).
        Refused when: the loop's bounds depend on data.
        """
        tree = tiling.split(self.scop, self.tree, loop, size)
        return self._step("split", {"loop": loop, "size": size}, tree, "none")

    @each_loop
    def strip_mine(self, loop: str, size: int) -> Self:
        """Cut a loop into strips and keep its values.

        Arguments: `loop`; `size`, iterations in a strip.
        Before -> after: `i` -> `i.out` (number of the strip), `i.in` (the values of `i` in it).
        Refused when: the loop's bounds depend on data.
        """
        tree = tiling.strip_mine(self.scop, self.tree, loop, size)
        return self._step("strip_mine", {"loop": loop, "size": size}, tree, "none")

    @each_loop
    def unsplit(self, loop: str, guarded: bool = False) -> Self:
        """Leave out a loop over blocks of others: the inverse of `strip_mine`.

        Arguments: `loop`, whose values the other loops around each statement determine.
        Before -> after: `i.out = i // 8, j, i` -> `j, i`.
        Refused when: instances would have the same time; a dependence would run backwards.
        """
        tree = tiling.unsplit(self.scop, self.tree, loop)
        return self._step("unsplit", {"loop": loop}, tree, guarded=guarded)

    def tile(self, loops: Sequence[str] | str, sizes: Sequence[int] | int, guarded: bool = False) -> Self:
        """Cut neighbouring nested loops into blocks and run block by block.

        Arguments: `loops`; `sizes`, one each or one for all. Statements between the loops are
        sunk into them.
        Before -> after: `i, j` -> `i.out, j.out, i.in, j.in`.
        Refused when: a dependence runs backwards between blocks, or bounds depend on data.
        """
        names = self._several(loops)
        each = [sizes] * len(names) if isinstance(sizes, int) else list(sizes)
        return self._step(
            "tile", {"loops": names, "sizes": each}, tiling.tile(self.scop, self.tree, names, each), guarded=guarded
        )

    @each_loop
    def unroll_and_jam(self, loop: str, factor: int, guarded: bool = False) -> Self:
        """Unroll an outer loop and run its copies side by side in the innermost loops.

        Arguments: `loop`; `factor`, copies.
        Before -> after: `i: j: S` -> `i.out: j: (S at i, S at i + 1, ...)`; each innermost place
        below gets its own unrolled `i.in`.
        Refused when: a dependence would run backwards; bounds depend on data.
        """
        tree = unrolling.unroll_and_jam(self.scop, self.tree, loop, factor)
        return self._step("unroll_and_jam", {"loop": loop, "factor": factor}, tree, guarded=guarded)

    @each_loop
    def index_split(self, loop: str, at: str | int) -> Self:
        """Cut the range of a loop in two at a position.

        Arguments: `loop`; `at`, the first value of the second part: an integer or an affine
        expression of the sizes and of loops around it as text (`"N // 2"`, `"8 * k.out + 8"`).
        Before -> after: `i` -> `i` (values below `at`), then `i_1` (from `at` on); the loops
        inside are copied and get new names in the second part.
        Refused when: never (the order does not change); bounds that depend on data cannot be cut.
        """
        tree = splitting.index_split(self.scop, self.tree, loop, at)
        return self._step("index_split", {"loop": loop, "at": at}, tree, "none")

    @each_loop
    def peel(self, loop: str, first: int = 1, last: int = 0) -> Self:
        """Take iterations off the ends of a loop.

        Arguments: `loop`; `first`, `last`, how many iterations at either end (for each value of
        the loops around, where bounds depend on them).
        Before -> after: `i` -> `i.first` (the first iterations), `i` (the rest), `i.last`.
        Refused when: never (the order does not change); bounds that depend on data cannot be cut.
        """
        tree = splitting.peel(self.scop, self.tree, loop, first, last)
        return self._step("peel", {"loop": loop, "first": first, "last": last}, tree, "none")

    @each_loop
    def version(self, loop: str, where: str) -> Self:
        """Make two copies of a loop: one for the sizes that fulfil a condition, one for all others.

        Arguments: `loop`; `where`, comparisons of affine expressions of the sizes as text, joined by `and`, `or`,
        `not` (`"N <= 4096"`, `"N % 8 == 0 and M < 2 * N"`).
        Before -> after: `i` -> `i` (sizes that fulfil `where`), `i_1` (all others); the loops inside are copied and
        get new names in the second copy.
        Refused when: never (the order does not change); a condition that all sizes fulfil, or none, chooses nothing.
        """
        tree = splitting.version(self.scop, self.tree, loop, where)
        return self._step("version", {"loop": loop, "where": where}, tree, "none")
