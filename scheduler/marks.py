"""Saying how a loop runs: `parallel`, `vectorize`, `unroll`. Pure tree edits, unchecked."""

from __future__ import annotations

from dataclasses import replace

from poly.errors import ScheduleError
from poly.tree import Band, LoopKind, Node, walk
from scheduler.arguments import positive
from scheduler.tree_edit import locate, map_member, outer_members


def mark(tree: Node, loop: str, kind: LoopKind, factor: int | None) -> Node:
    """The loop with a kind and factor; a loop carries one mark, a branch one vector loop."""
    spot = locate(tree, loop)
    if factor is not None:
        positive(factor, f"factor of loop '{loop}'")
    if spot.member.kind not in ("serial", kind):
        raise ScheduleError(f"loop '{loop}' is already {_SAY[spot.member.kind]}")
    if kind in ("vector", "parallel"):
        around = [*outer_members(spot.path), *spot.band.members]
        below = [m for node in walk(spot.band.child) if isinstance(node, Band) for m in node.members]
        for m in (*around, *below):
            if m.kind == kind and m.name != loop:
                raise ScheduleError(f"loop '{loop}' cannot be {_SAY[kind]}: loop '{m.name}' of the nest is already")
    return map_member(tree, loop, replace(spot.member, kind=kind, factor=factor))


_SAY: dict[LoopKind, str] = {
    "serial": "serial",
    "parallel": "parallel",
    "vector": "vectorised",
    "unroll": "unrolled",
}
