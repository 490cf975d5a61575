"""The state of a strategy for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyc.poly.budgets import ATTEMPT
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.target import GpuTarget
from polyc.poly.tree import Member
from polyc.scheduler.cost.cache_blocks import NEAR_BYTES
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Plan


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
        tried = super().attempt
        return self.bounded(subject, what, lambda: tried(subject, what, proposal, **figures), **figures)

    def bounded(self, subject: str, what: str, body: Callable[[], bool], **figures: Any) -> bool:
        """What `body` says, within the budget of one step; where that ends, the schedule stays and says so."""
        try:
            with quota(ATTEMPT):
                return body()
        except QuotaExceeded as error:
            self.decline(subject, f"{what}: not taken", str(error), **figures)
            return False
