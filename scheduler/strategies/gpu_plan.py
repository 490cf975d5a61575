"""The state of a strategy for a GPU."""

from __future__ import annotations

from poly.target import GpuTarget
from poly.tree import Member
from scheduler.schedule import Schedule
from scheduler.strategies.planner import Plan

NEAR_BYTES = 16 * 1024  # what the statements of one block may hand on to each other in caches


class GpuPlan(Plan):
    """The plan of a schedule for a GPU."""

    def __init__(self, schedule: Schedule, target: GpuTarget) -> None:
        super().__init__(schedule, NEAR_BYTES)
        self.target = target

    def parallel(self, member: Member) -> bool:
        """Whether the loop carries nothing and has more than one iteration."""
        return self.carried()[member.name].parallel and self.extent(member) not in (0, 1)
