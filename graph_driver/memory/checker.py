"""The independent check of a placement: every pair is compared, nothing is shared with the planners."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.memory.lifetimes import ALIGNMENT, Lifetime, Overlaps, Placement, PlanError, overlap_is_legal

NONE: Overlaps = {}


def check_placement(
    tensors: Sequence[Lifetime], placement: Placement, alignment: int = ALIGNMENT, overlaps: Overlaps = NONE
) -> None:
    """Independent proof that a plan is sound: every pair is compared.

    `overlaps`: pairs that may have bytes in common at certain distances.

    Raises:
        PlanError: a tensor has no place, is misaligned, lies outside the arena, or overlaps
            another that is alive at the same time (both are named).
    """
    for t in tensors:
        offset = placement.offsets.get(t.name)
        if offset is None:
            raise PlanError(f"tensor '{t.name}' has no place in the arena")
        if offset % alignment or offset < 0 or offset + t.size > placement.peak:
            raise PlanError(f"tensor '{t.name}' at {offset} (+{t.size}) does not fit an arena of {placement.peak}")
    for k, a in enumerate(tensors):
        for b in tensors[k + 1 :]:
            start, other = placement.offsets[a.name], placement.offsets[b.name]
            common = a.size and b.size and start < other + b.size and other < start + a.size
            if common and a.meets(b) and not overlap_is_legal(overlaps, a, b, other - start):
                raise PlanError(f"tensors '{a.name}' and '{b.name}' are alive together and overlap in the arena")
