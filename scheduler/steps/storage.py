"""Moving arrays to smaller buffers: `promote contract`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.tree import Space
from polyc.scheduler.core import Core
from polyc.scheduler.transformations import storage


class Storage(Core):
    """Part of `Schedule`."""

    def promote(
        self, array: str, at: str | None = None, space: Space = "local",
        layout: Sequence[int] | Sequence[Sequence[int]] | None = None,
        copy_in: bool | None = None, copy_out: bool | None = None, guarded: bool = False,
        around: str | None = None, buffer: str | None = None,
    ) -> Self:  # fmt: skip
        """Give an array a buffer of its own inside a loop: the tile that one iteration touches.

        Arguments: `array`; `at`, the loop, or `around`, a loop that the buffer is made for once,
        before its first iteration; `space`: register, local, shared, heap; `layout`: the
        order of the dimensions (`[1, 0]` transposes) or `(dimension, divisor, modulus)` triples,
        outermost first (`[(0, 8, 0), (1, 1, 0), (0, 1, 8)]`: panels of 8 rows); `copy_in`,
        `copy_out`: False leaves the copy out, by default there is a copy where one is needed;
        `buffer`, its name.
        Before -> after: inside each iteration of `at`, the part of `array` used is copied to a
        buffer, used there, and copied back if written. The tree shows its offset and extent.
        A buffer may have a buffer: a panel in shared memory, a column of it in registers.
        Refused when: a copy is left out and a value does not reach a reader; a subscript or the
        extent depends on data; a layout gives two elements one place.
        """
        if (at is None) == (around is None):
            raise ScheduleError(f"promote '{array}' either at a loop or around one: give `at` or `around`")
        loop = self._one(at or around or "")
        triples = storage.full_layout(self.scop, array, layout)
        given: dict[str, Any] = {"layout": None if triples is None else [list(x) for x in triples]}
        given |= {"copy_in": copy_in, "copy_out": copy_out, "buffer": buffer}
        where = {"around" if at is None else "at": loop}
        args = {"array": array, **where, "space": space, **{k: v for k, v in given.items() if v is not None}}
        moves = storage.Moves(copy_in, copy_out)
        tree = storage.promote(self.scop, self.tree, array, loop, space, triples, moves, at is None, buffer)
        return self._step("promote", args, tree, guarded=guarded)

    def contract(self, array: str, space: Space | None = None, guarded: bool = False) -> Self:
        """Shrink a local array to what one iteration needs.

        Arguments: `array`, local; `space`, default register, local or heap by size.
        Before -> after: the array becomes a buffer at the deepest place where no value outlives
        an iteration of the loops around it.
        Refused when: there is no such place inside a loop.
        """
        refusal: IllegalSchedule | None = None
        for guard in (False, True) if guarded else (False,):
            for tree, place in storage.contractions(self.scop, self.tree, array, space):
                if not place.loops():
                    break
                try:
                    return self._step("contract", {"array": array, "space": space}, tree, "storage", guarded=guard)
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
