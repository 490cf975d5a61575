"""Work and memory traffic of a schedule in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler.schedule import Schedule


def cost_data(schedule: Schedule) -> dict[str, Any]:
    return {}
