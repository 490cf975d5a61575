"""Strategy: local arrays are stored in the order in which sums read them (step `relayout`)."""

from __future__ import annotations

from polyc.poly.forms.layout_maps import in_order
from polyc.scheduler.cost.reading_orders import reading_orders
from polyc.scheduler.strategies.planner import Planner


def store(plan: Planner) -> None:
    """Propose it for each array."""
    for array, order in reading_orders(plan.scop, plan.target).items():
        what = f"stored as [{', '.join(f'i{d}' for d in order)}], as it is read"
        plan.attempt(array, what, lambda s, a=array, o=order: s.relayout(a, in_order(o)))  # type: ignore[misc]
