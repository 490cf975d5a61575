"""Saying how a loop runs: `parallel`, `vectorize`, `unroll`, `bind`, `serial`. Pure tree edits, unchecked.

What makes no sense on the tree (no such loop or axis, a loop that has a kind already) is a `ScheduleError`.
"""

from __future__ import annotations

from typing import get_args

from polyc.poly.errors import ScheduleError
from polyc.poly.records import replace
from polyc.poly.tree import GpuAxis, LoopKind, Node, is_bound, loops_below
from polyc.scheduler.arguments import positive
from polyc.scheduler.transformations.tree_edit import locate, outer_members, put_member

AXES: tuple[GpuAxis, ...] = get_args(GpuAxis)


def mark(tree: Node, loop: str, kind: LoopKind, factor: int | None) -> Node:
    """The loop with a kind and factor; a loop carries one mark, a branch one loop of a kind
    (any number of unrolled ones)."""
    spot = locate(tree, loop)
    if factor is not None:
        positive(factor, f"factor of loop '{loop}'")
    if spot.member.kind not in ("serial", kind):
        raise ScheduleError(f"loop '{loop}' is already {said(spot.member.kind)}")
    around = [*outer_members(spot.path), *spot.band.members[: spot.index]]
    below = [*spot.band.members[spot.index + 1 :], *loops_below(spot.band.child)]
    for m in (*around, *below):
        if m.kind == kind and kind != "unroll" and kind != "serial":
            raise ScheduleError(f"loop '{loop}' cannot be {said(kind)}: loop '{m.name}' of the nest is already")
        if is_bound(kind) and m.kind == "parallel" or is_bound(m.kind) and kind == "parallel":
            raise ScheduleError(f"loop '{loop}' cannot be {said(kind)}: loop '{m.name}' of the nest is {said(m.kind)}")
    wrong = [m for m in around if m.kind.startswith("thread.")] if kind.startswith("block.") else []
    wrong += [m for m in below if m.kind.startswith("block.")] if kind.startswith("thread.") else []
    if wrong:
        raise ScheduleError(
            f"loop '{loop}' cannot be {said(kind)}: loop '{wrong[0].name}' is {said(wrong[0].kind)}, "
            f"and loops over blocks go outside loops over threads"
        )
    return put_member(spot, replace(spot.member, kind=kind, factor=factor))


def bind(tree: Node, loop: str, axis: GpuAxis) -> Node:
    """The loop bound to an axis of the grid of blocks, or of the threads of a block."""
    if axis not in AXES:
        raise ScheduleError(f"no GPU axis '{axis}': the axes are {', '.join(AXES)}")
    return mark(tree, loop, axis, None)


def unmark(tree: Node, loop: str) -> Node:
    """The loop without a mark."""
    spot = locate(tree, loop)
    return put_member(spot, replace(spot.member, kind="serial", factor=None))


def said(kind: LoopKind) -> str:
    """The kind in a sentence: the loop is ..."""
    words: dict[LoopKind, str] = {"vector": "vectorised", "unroll": "unrolled"}
    return f"bound to {kind}" if is_bound(kind) else words.get(kind, kind)
