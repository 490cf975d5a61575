"""Schedules whose sizes become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from polyc.poly.rewriting.specialise import specialise, specialise_tree

if TYPE_CHECKING:
    from polyc.scheduler.schedule import Schedule


def specialised(schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    """The schedule with sizes fixed (those that are still parameters)."""
    known = {n: v for n, v in sizes.items() if n in schedule.scop.params}
    if not known:
        return schedule
    return replace(schedule, scop=specialise(schedule.scop, known), tree=specialise_tree(schedule.tree, known))
