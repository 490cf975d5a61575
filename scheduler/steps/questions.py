"""Questions about a schedule; they change nothing and are no steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyc.poly.rewriting.specialise import specialise, specialise_tree
from polyc.scheduler.core import Core, as_list

if TYPE_CHECKING:
    from polyc.poly.closed_forms.formula import Formula, Ratio
    from polyc.scheduler.questions.dependences import Dependence
    from polyc.scheduler.questions.miss_formulas import Case


class Questions(Core):
    """What the program computes and touches, what depends on what, and which loops are free.

    Formulas (`polyc.poly.closed_forms.formula.Formula`) are exact for all sizes unless they say so, print as text
    (`2*K*M*N`) and are called with sizes: `s.count("flops")(M=3, N=4, K=5)`.
    """

    def dependences(
        self, kind: str | None = None, value_based: bool = True, arrays: Sequence[str] | str | None = None
    ) -> tuple[Dependence, ...]:
        """What depends on what, in the program's own order (the schedule plays no part).

        Arguments: `kind`, RAW, WAR, WAW or all; `value_based`, only pairs between which no other
        write certainly happens (False: all pairs that touch one element); `arrays`, some only.
        Raises: `ScheduleError` for an unknown kind or array, `QuotaExceeded` for a program too large.
        """
        from polyc.scheduler.questions import dependences

        chosen = None if arrays is None else as_list(arrays)
        return dependences.dependences(self.scop, kind, value_based, chosen)

    def parallel_loops(self, reductions: bool = False) -> tuple[str, ...]:
        """Loops of the tree that carry no conflict, outermost first.

        `reductions`: also those that only carry a reduction's own updates.
        """
        from polyc.scheduler.questions import loops

        return loops.parallel_loops(self.scop, self.tree, reductions)

    def permutable_bands(self) -> tuple[tuple[str, ...], ...]:
        """The longest groups of directly nested loops (two or more) that may be put in any order
        and tiled: no conflict runs backwards in any of them."""
        from polyc.scheduler.questions import loops

        return loops.permutable_bands(self.scop, self.tree)

    def count(self, what: str, at: str | None = None, statements: Sequence[str] | str | None = None) -> Formula:
        """An exact number as a formula in the sizes.

        Arguments: `what`:
          `instances`  statement instances
          `flops`      floating-point operations: `+ - * / // % ** min max` and intrinsics one, `fma` two
          `loads`, `stores`  accesses of arrays
          `bytes`      every element of an argument read, and of a result written, once: what a
                       perfect cache moves
          `traffic`    bytes of all loads and stores: what no cache moves
        `at`: in one iteration of this loop (its value and those around it join the sizes);
        `statements`: of these only.
        Raises: `CountingError` when it is too hard, or depends on data; `ScheduleError` for unknown names.
        """
        from polyc.scheduler.questions import counts

        chosen = None if statements is None else as_list(statements)
        return counts.count(self.scop, self.tree, what, at, chosen)

    def footprint(self, array: str, at: str | None = None, reads: bool = True, writes: bool = True) -> Formula:
        """Distinct elements of `array` that one iteration of the loop `at` touches (all iterations
        of everything without `at`), as a formula in the sizes and the values of the loops around.

        `reads`, `writes`: only those elements. `formula.largest(M=..., ...)` is the maximum over the
        loops' values. Raises: as `count`.
        """
        from polyc.scheduler.questions import counts

        return counts.footprint(self.scop, self.tree, array, at, reads, writes)

    def reuse(self, array: str, at: str | None = None) -> Ratio:
        """How often an element of `array` is touched, on average, in one iteration of `at`."""
        from polyc.scheduler.questions import counts

        return counts.touches(self.scop, self.tree, array, at) / self.footprint(array, at)

    def intensity(self, at: str | None = None) -> Ratio:
        """Flops per byte when every element is moved once."""
        return self.count("flops", at) / self.count("bytes", at)

    def misses(self, capacity: int, line: int = 64, **sizes: int) -> dict[str, int]:
        """Lines that each array's accesses fetch into an empty cache of `capacity` bytes, predicted.

        `line`: bytes of a line; the cache replaces the line least recently used. Buffers are not counted.
        Raises: `ScheduleError` when a size has no number, or depends on data; `ArgumentError` for an unknown size;
        `CountingError` where a footprint is too hard.
        """
        from polyc.scheduler.questions import misses

        scop, tree = specialise(self.scop, sizes), specialise_tree(self.tree, sizes)
        found = misses.predicted_misses(scop, tree, capacity, line)
        return {array: round(n) for array, n in found.items()}

    def miss_formulas(self, line: int = 64, always: int = 0) -> tuple[Case, ...]:
        """Lines that each array's accesses fetch, as formulas in the sizes. Buffers are not counted.

        A case for each loop whose one iteration may stay in the cache, outermost first; the first that holds counts.
        Where loops part, each part has cases of its own (`Case.statements`), and those that count add up. What comes
        after a loop whose iteration touches at most `always` lines, whatever the sizes, is left out: `32768 // 64` for
        a cache of 32 KiB or more.

        Raises: `ScheduleError` where loops depend on data; `CountingError` where a footprint is too hard.
        """
        from polyc.scheduler.questions.miss_formulas import miss_formulas

        return tuple(miss_formulas(self.scop, self.tree, line, always))
