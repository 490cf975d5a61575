"""What would make a refused step legal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from poly.errors import ScheduleError
from scheduler import hints
from scheduler.step import Step

if TYPE_CHECKING:
    from scheduler.core import Core


@dataclass(frozen=True)
class Repair:
    """Steps that do what a refused step wanted, legally: the wanted one, perhaps changed, is the last."""

    steps: tuple[Step, ...]
    text: str

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def apply(self, schedule: Any) -> Any:
        """The steps on the schedule that refused, with one check of the result."""
        return schedule.batch(*((s.name, s.args) for s in self.steps))


def find(before: Core, step: Step) -> Repair | None:
    """The smallest repair of `step`, refused on the schedule `before`; None when none was found."""
    for text, proposal in hints.proposals(before, step):
        try:
            replace(before, terse=True).batch(*proposal)
        except ScheduleError:
            continue
        return Repair(tuple(Step(n, a) for n, a in proposal), text)
    return None
