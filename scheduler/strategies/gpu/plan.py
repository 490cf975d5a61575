"""The state of a strategy for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poly.quota import QuotaExceeded, quota
from poly.target import GpuTarget
from poly.tree import Member
from scheduler.schedule import Schedule
from scheduler.strategies.planner import Plan

ATTEMPT = 4_000_000  # isl operations for one step: half a second
NEAR_BYTES = 16 * 1024  # what the statements of one block may hand on to each other in caches


class GpuPlan(Plan):
    """The plan of a schedule for a GPU."""

    def __init__(self, schedule: Schedule, target: GpuTarget) -> None:
        super().__init__(schedule, NEAR_BYTES)
        self.target = target

    def parallel(self, member: Member) -> bool:
        """Whether the loop carries nothing and has more than one iteration."""
        return self.carried()[member.name].parallel and self.extent(member) not in (0, 1)

    def attempt(self, subject: str, what: str, proposal: Callable[[Schedule], Schedule], **figures: Any) -> bool:
        """As for any plan, but a step that costs isl too much is not taken."""
        try:
            with quota(ATTEMPT):
                return super().attempt(subject, what, proposal, **figures)
        except QuotaExceeded as error:
            self.decline(subject, f"{what}: not taken", str(error), **figures)
            return False
