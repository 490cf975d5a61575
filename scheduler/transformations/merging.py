"""Bringing the nests of a time loop together, so that the loops of all statements form one band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyc.poly.errors import ScheduleError
from polyc.poly.records import dataclass, replace
from polyc.poly.tree import Band, Filter, Node, loop_names
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.step import Step
from polyc.scheduler.transformations.tree_edit import locate


@dataclass(frozen=True)
class Merged:
    """The steps (unchecked), the schedule after them, and the new names of merged loops."""

    steps: tuple[Step, ...]
    schedule: Any
    names: dict[str, str]


def merge_nests(before: Any, loops: Sequence[str]) -> Merged | None:
    """Fuse the nests inside the outermost of `loops`, level by level, for as many levels as there
    are loops; parts with fewer loops are sunk. None where there is nothing to merge or no way to.

        t: (i: (j: S0)); (i_1: (j_1: S1))      ->      t: i: j: (S0; S1)
    """
    schedule = replace(before, _deferred=True)
    order = [n for n in loop_names(schedule.tree) if n in loops]
    outer, levels = order[0], len(order) - 1
    steps: list[Step] = []
    names: dict[str, str] = {}

    def do(name: str, **args: Any) -> None:
        nonlocal schedule
        steps.append(Step(name, args))
        schedule = getattr(schedule, name)(**args)

    try:
        for level in range(levels, 0, -1):
            parts = _parts(schedule.tree, outer)
            if parts is None:  # one nest only: the next loop is the outer one's child
                inner = _next_loop(schedule.tree, outer)
                if inner is None:
                    return None
                outer = inner
                continue
            deep = [k for k, f in enumerate(parts) if _depth(f.child) >= level]
            if not deep or deep != list(range(deep[0], deep[-1] + 1)):
                return None
            heads = [loop_names(parts[k].child)[0] for k in deep]
            for other in heads[1:]:
                do("fuse", a=heads[0], b=other, shift=0)
                names[other] = heads[0]
            if len(deep) < len(parts):
                do("permute", loops=[outer, heads[0]])  # the same order: sinks the shallow parts
            outer = heads[0]
    except ScheduleError:
        return None
    return Merged(tuple(steps), schedule, names) if steps else None


def _parts(tree: Node, loop: str) -> tuple[Filter, ...] | None:
    """The parts of the Sequence directly inside a loop, None when there is none."""
    spot = locate(tree, loop)
    last = spot.index == len(spot.band.members) - 1
    return spot.band.child.filters if last and isinstance(spot.band.child, SequenceNode) else None


def _next_loop(tree: Node, loop: str) -> str | None:
    spot = locate(tree, loop)
    if spot.index + 1 < len(spot.band.members):
        return spot.band.members[spot.index + 1].name
    return spot.band.child.members[0].name if isinstance(spot.band.child, Band) else None


def _depth(node: Node) -> int:
    """The most loops around a statement of the subtree."""
    below = max((_depth(c) for c in node.children()), default=0)
    return below + (len(node.members) if isinstance(node, Band) else 0)
