"""Joining and separating loops: `fuse distribute`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.legality import first_violation
from polyc.poly.words import counted
from polyc.scheduler.core import Core
from polyc.scheduler.texts.addressing import each_loop
from polyc.scheduler.transformations import fusion, ordering


class Joining(Core):
    """Part of `Schedule`."""

    def fuse(
        self,
        a: str | Sequence[str],
        b: str | Sequence[str],
        shift: int | str | Sequence[int | str] = 0,
        guarded: bool = False,
    ) -> Self:
        """Make one loop of two neighbours.

        Arguments: `a`, `b`, where `b` follows `a` directly, or lists of the nested loops to fuse
        level by level, outermost first; `shift`, iterations by which `b`'s body is delayed, or
        "auto" for the smallest that is legal (one for all levels or a list).
        Before -> after: `a: S0; b: S1` -> `a: (S0; S1)`.
        Refused when: a dependence would run backwards; bounds depend on data.
        """
        firsts, seconds = self._several(a), self._several(b)
        shifts = [shift] * len(firsts) if isinstance(shift, (int, str)) else list(shift)
        if not len(firsts) == len(seconds) == len(shifts):
            both = f"{counted(len(firsts), 'loop')}, {counted(len(seconds), 'loop')}"
            raise ScheduleError(f"fuse pairs loops: {both}, {counted(len(shifts), 'shift')}")
        schedule = self
        for first, second, by in zip(firsts, seconds, shifts, strict=True):
            schedule = schedule._fused(first, second, by, guarded)
        return schedule

    def _fused(self, a: str, b: str, shift: int | str, guarded: bool) -> Self:
        """One level of `fuse`."""
        if isinstance(shift, str):
            if shift != "auto":
                raise ScheduleError(f'shift is an integer or "auto", not {shift!r}')
            found = fusion.smallest_shift(self.scop, self.tree, a, b)
            if found is None and guarded:
                found = 0  # legal for some sizes as it stands, perhaps
            if found is None:
                violation = first_violation(self.scop, fusion.fuse(self.scop, self.tree, a, b))
                raise IllegalSchedule(f"fuse({a}, {b}): no constant shift makes it legal", violation, terse=self.terse)
            shift = found
        tree = ordering.shift(self.scop, self.tree, b, shift, None) if shift else self.tree
        new = fusion.fuse(self.scop, tree, a, b)
        return self._step("fuse", {"a": a, "b": b, "shift": shift}, new, guarded=guarded)

    @each_loop
    def distribute(self, loop: str, guarded: bool = False) -> Self:
        """Give each part of a loop's body a loop of its own.

        Arguments: `loop`; loops between it and the parts are copied too.
        Before -> after: `i: (S0; S1)` -> `i: S0; i_1: S1`.
        Refused when: a dependence runs from a later part to an earlier one.
        """
        return self._step("distribute", {"loop": loop}, fusion.distribute(self.tree, loop), guarded=guarded)
