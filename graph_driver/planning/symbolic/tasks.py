"""Which steps of a plan may run at the same time, whatever its sizes are.

As `graph_driver.planning.tasks`, but where a tensor lies in the arena follows from the sizes: only two that are alive
together are apart at all of them, because one is stacked on the other (`graph_driver.planning.symbolic.arena`). So a
step waits for another when both touch the same memory, or memories of the arena that are never alive together, and one
writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polyc.graph_driver.memory import PlanError
from polyc.graph_driver.planning.plan import Step
from polyc.graph_driver.planning.tasks import ordered, segments_of
from polyc.graph_driver.planning.verify_plan import closure

if TYPE_CHECKING:
    from polyc.graph_driver.planning.symbolic.template import Template

Home = tuple[str, str]  # kind of memory, and which: a tensor of the arena, the number of an input or output


def before(template: Template) -> list[int]:
    """For each step a bit mask of the earlier ones of its segment that must be done before it, at any sizes."""
    plan = template.typical
    uses = [_uses(template, s) for s in plan.steps]
    return ordered(uses, segments_of(plan.steps), _may_meet(template))


def check_after(template: Template) -> None:
    """The steps wait for all that they must wait for at any sizes.

    Raises:
        PlanError: the first step that does not.
    """
    plan = template.typical
    if not plan.after:
        return
    for k, (must, has) in enumerate(zip(before(template), closure(plan), strict=True)):
        if must & ~has:
            other = (must & ~has).bit_length() - 1
            raise PlanError(f"steps {other} and {k} may run together, but share memory at some sizes")


def _uses(template: Template, step: Step) -> tuple[frozenset[Home], frozenset[Home]]:
    """What a step reads and writes; weights and the table are never written and left out."""
    written = {*step.results, *step.scratch}

    def homes(names: set[str]) -> frozenset[Home]:
        return frozenset(h for n in names if (h := _home(template, n)) is not None)

    return homes({*step.args} - written), homes(written)


def _home(template: Template, name: str) -> Home | None:
    slot = template.typical.slots.get(name)
    if slot is None or name in template.values:
        return None
    if slot.place.kind == "arena":
        return "arena", template.homes[name][0]
    return (slot.place.kind, str(slot.place.index)) if slot.place.kind in ("input", "output") else None


def _may_meet(template: Template) -> Callable[[Home, Home], bool]:
    steps = template.arena.steps

    def meet(a: Home, b: Home) -> bool:
        if a == b or a[0] != "arena" or b[0] != "arena":
            return a == b
        (first, last), (begin, end) = steps[a[1]], steps[b[1]]
        return last < begin or end < first

    return meet
