"""Joining and separating loops: `fuse distribute`."""

from __future__ import annotations

from typing import Self

from poly.errors import IllegalSchedule, ScheduleError
from scheduler import fusion, hints, ordering
from scheduler.core import Core
from scheduler.tree_edit import locate


class Joining(Core):
    """Part of `Schedule`."""

    def fuse(self, a: str, b: str, shift: int | str = 0) -> Self:
        """Make one loop of two neighbours.

        Arguments: `a`, `b`, where `b` follows `a` directly; `shift`, iterations by which `b`'s body
        is delayed, or "auto" for the smallest that is legal.
        Before -> after: `a: S0; b: S1` -> `a: (S0; S1)`.
        Refused when: a dependence would run backwards; bounds depend on data.
        """
        body = tuple(locate(self.tree, b).member.schedule)
        tree = fusion.fuse(self.scop, self.tree, a, b)
        if isinstance(shift, str):
            if shift != "auto":
                raise ScheduleError(f'shift is an integer or "auto", not {shift!r}')
            found = hints.smallest_delay(self, a, b)
            if found is None:
                raise IllegalSchedule(f"fuse({a}, {b}): no constant shift makes it legal")
            shift = found
        if shift:
            tree = ordering.shift(self.scop, tree, a, shift, body)
        return self._step("fuse", {"a": a, "b": b, "shift": shift}, tree)

    def distribute(self, loop: str) -> Self:
        """Give each part of a loop's body a loop of its own.

        Arguments: `loop`; loops between it and the parts are copied too.
        Before -> after: `i: (S0; S1)` -> `i: S0; i_1: S1`.
        Refused when: a dependence runs from a later part to an earlier one.
        """
        return self._step("distribute", {"loop": loop}, fusion.distribute(self.tree, loop))
