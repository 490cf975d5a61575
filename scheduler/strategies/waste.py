"""Strategy: what the program computes in vain or twice, or only hands on, is left out before anything else is decided
(step `eliminate`): a fused kernel of which a slice is read, or two branches that begin alike, is no larger than its
results need."""

from __future__ import annotations

from polyc.poly.rewriting.waste import without_waste
from polyc.scheduler.strategies.planner import Plan


def eliminate(plan: Plan) -> None:
    """Propose it where there is something to leave out and the program does not say itself how its loops run."""
    if plan.schedule.trace or len(plan.scop.statements) < 2:
        return
    found = without_waste(plan.scop)
    if found is not plan.scop:
        figures = {"statements": len(plan.scop.statements), "left": len(found.statements)}
        plan.attempt(
            plan.scop.name, "dead, common and passing statements are left out", lambda s: s.eliminate(), **figures
        )
