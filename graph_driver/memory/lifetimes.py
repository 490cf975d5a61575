"""What a planner gets and gives: tensors with lifetimes, and offsets in one arena (bytes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass

ALIGNMENT = 64


class PlanError(PolycError):
    """A memory plan in which two live tensors overlap (found by `check_placement`)."""

    code = "P413"


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
class Shape:
    """One memory whose bytes are not all alive at the same time: `runs` are (offset, lifetime) inside it."""

    name: str
    runs: tuple[tuple[int, Lifetime], ...]

    @property
    def hull(self) -> Lifetime:
        """All of it, all the time."""
        size = max(at + t.size for at, t in self.runs)
        return Lifetime(self.name, size, min(t.first for _, t in self.runs), max(t.last for _, t in self.runs))


Overlaps = Mapping[tuple[str, str], tuple[int, int]]
"""Pairs of lifetimes (A, B) that meet and may overlap all the same, with bytes (low, high): B's begin minus A's must
not lie strictly between. One of the two dies, element by element, in the step that makes the other."""


def overlap_is_legal(overlaps: Overlaps, a: Lifetime, b: Lifetime, distance: int) -> bool:
    """Whether B may begin `distance` bytes after A although they have bytes in common and are alive together."""
    low, high = overlaps.get((a.name, b.name), (-b.size, a.size))
    if not low < distance < high:
        return True
    low, high = overlaps.get((b.name, a.name), (-a.size, b.size))
    return not low < -distance < high


@dataclass(frozen=True)
class Placement:
    """Offsets by tensor name, and the arena's size."""

    offsets: Mapping[str, int]
    peak: int


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """`size` rounded up."""
    return -(-size // alignment) * alignment


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
