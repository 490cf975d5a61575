"""Moving arrays to smaller buffers: `promote contract`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from poly.errors import IllegalSchedule, ScheduleError
from poly.tree import Space
from scheduler import storage
from scheduler.core import Core


class Storage(Core):
    """Part of `Schedule`."""

    def promote(self, array: str, at: str, space: Space = "local") -> Self:
        """Give an array a buffer of its own inside a loop.

        Arguments: `array`; `at`, the loop; `space`: register, local, shared, heap.
        Before -> after: inside each iteration of `at`, the part of `array` used is copied to a
        buffer, used there, and copied back if written.
        Refused when: iterations of a parallel loop above would disagree.
        """
        return self._step("promote", {"array": array, "at": at, "space": space},
                          storage.promote(self.scop, self.tree, array, at, space))  # fmt: skip

    def contract(self, array: str, space: Space | None = None) -> Self:
        """Shrink a local array to what one iteration needs.

        Arguments: `array`, local; `space`, default register, local or heap by size.
        Before -> after: the array becomes a buffer at the deepest place where no value outlives
        an iteration of the loops around it.
        Refused when: there is no such place inside a loop.
        """
        refusal: IllegalSchedule | None = None
        for tree, place in storage.contractions(self.scop, self.tree, array, space):
            if not place.loops():
                break
            try:
                return self._step("contract", {"array": array, "space": space}, tree, "storage")
            except IllegalSchedule as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        raise ScheduleError(f"array '{array}' has no common loop around its accesses: nothing to contract")

    def contract_all(self, arrays: Sequence[str]) -> Self:
        """`contract` for several arrays, each at its deepest place, with one check for all.

        Refused when one of them cannot be contracted there (single steps may find another place).
        """
        return self._batch("storage", *(("contract", {"array": a}) for a in arrays))
