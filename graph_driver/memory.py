"""Memory planning: offsets in one arena for tensors whose lifetimes overlap.

Greedy by size (Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020): largest first, each into the smallest gap that fits among the tensors
that are alive at the same time. Sizes and offsets in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from poly.errors import PolycError

ALIGNMENT = 64


class PlanError(PolycError):
    """A memory plan in which two live tensors overlap (found by `check_placement`)."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor of `size` bytes, alive from step `first` to step `last`, both included."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Placement:
    """Offsets by tensor name, and the arena's size."""

    offsets: Mapping[str, int]
    peak: int


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """`size` rounded up."""
    return -(-size // alignment) * alignment


def greedy_by_size(tensors: Iterable[Lifetime], alignment: int = ALIGNMENT) -> Placement:
    """Offsets, largest tensor first, each in the tightest gap; ties go by first use and name."""
    placed: list[tuple[int, int, Lifetime]] = []  # (offset, end, tensor)
    offsets: dict[str, int] = {}
    for t in sorted(tensors, key=lambda t: (-t.size, t.first, t.name)):
        size = aligned(t.size, alignment)
        offset = _tightest_gap([(o, e) for o, e, other in placed if other.meets(t)], size)
        offsets[t.name] = offset
        placed.append((offset, offset + size, t))
    return Placement(offsets, max((e for _, e, _ in placed), default=0))


def _tightest_gap(taken: list[tuple[int, int]], size: int) -> int:
    """Start of the smallest gap between the taken ranges that holds `size`, else their end."""
    best, best_room, end = -1, 0, 0
    for start, stop in sorted(taken):
        room = start - end
        if room >= size and (best < 0 or room < best_room):
            best, best_room = end, room
        end = max(end, stop)
    return best if best >= 0 else end


def lower_bound(tensors: Sequence[Lifetime], alignment: int = ALIGNMENT) -> int:
    """The largest number of bytes alive at one step: no plan can do with less."""
    changes: dict[int, int] = {}
    for t in tensors:
        size = aligned(t.size, alignment)
        changes[t.first] = changes.get(t.first, 0) + size
        changes[t.last + 1] = changes.get(t.last + 1, 0) - size
    peak = live = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def live_at_peak(tensors: Sequence[Lifetime], alignment: int = ALIGNMENT) -> list[Lifetime]:
    """The tensors alive at the step that sets the lower bound, largest first."""
    best: list[Lifetime] = []
    most = -1
    for step in sorted({t.first for t in tensors}):
        live = [t for t in tensors if t.first <= step <= t.last]
        total = sum(aligned(t.size, alignment) for t in live)
        if total > most:
            best, most = live, total
    return sorted(best, key=lambda t: (-t.size, t.name))


def check_placement(tensors: Sequence[Lifetime], placement: Placement, alignment: int = ALIGNMENT) -> None:
    """Independent proof that a plan is sound: every pair is compared.

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
            if a.size and b.size and a.meets(b) and start < other + b.size and other < start + a.size:
                raise PlanError(f"tensors '{a.name}' and '{b.name}' are alive together and overlap in the arena")
