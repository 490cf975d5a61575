"""What would make a refused step legal: the smallest shift or skew, found by trying."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from poly.errors import ScheduleError
from scheduler.fusion import smallest_shift
from scheduler.tree_edit import chain_of, together

if TYPE_CHECKING:
    from scheduler.core import Core
    from scheduler.step import Step

FACTORS = (1, -1, 2, 3)


def proposals(before: Core, step: Step) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """Steps to try instead, smallest change first."""
    same = (step.name, step.args)
    if step.name == "fuse" and not step.args["shift"]:
        a, b = step.args["a"], step.args["b"]
        amount = smallest_shift(before.scop, before.tree, a, b)
        if amount:
            yield f"shift={amount} makes it legal", [("fuse", {"a": a, "b": b, "shift": amount})]
    if step.name in ("interchange", "permute", "tile"):
        loops = step.args.get("loops") or [step.args["a"], step.args["b"]]
        try:
            order = chain_of(together(before.scop, before.tree, loops), loops[0]).names()
        except ScheduleError:
            return
        outer, *inner = sorted(loops, key=order.index)
        for factor in FACTORS:
            steps = [("skew", {"loop": n, "by": outer, "factor": factor}) for n in inner]
            words = ", ".join(f"skew({n!r}, {outer!r}, {factor})" for n in inner)
            yield f"after {words} it is legal", [*steps, same]
