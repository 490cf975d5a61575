"""Planning below tensors: memories that die element by element may lie over what is made meanwhile, at a distance.

To a planner two memories that are alive together forbid each other an interval of distances: the one in which they
would have a byte in common or, if they may overlap, the one in which an element would be overwritten before its last
use. The placement puts each memory as low as no interval forbids; which order of memories is best is searched for,
from the usual orders on: those that end at the peak come earlier, after Joslin and Clements, "Squeaky Wheel
Optimization", JAIR 10, 1999. The same every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from polyc.graph_driver.memory.lifetimes import (
    ALIGNMENT,
    Lifetime,
    Overlaps,
    Placement,
    Shape,
    aligned,
    lower_bound,
)
from polyc.poly.records import dataclass

TRIES = 1_500
"""Placements that a search makes."""


@dataclass(frozen=True, slots=True)
class _Forbidden:
    """The memory `other`, and an open interval in which this memory's begin minus the other's must not lie."""

    other: int
    low: int
    high: int


def distances(
    first: Sequence[tuple[int, Lifetime]], second: Sequence[tuple[int, Lifetime]], overlaps: Overlaps, alignment: int
) -> list[tuple[int, int]]:
    """Open intervals in which the second memory's begin minus the first's must not lie, runs of both given."""
    found = []
    for at, t in first:
        for begin, other in second:
            if not t.size or not other.size or not t.meets(other):
                continue
            low, high = -aligned(other.size, alignment), aligned(t.size, alignment)
            if (t.name, other.name) in overlaps:
                legal = overlaps[t.name, other.name]
                low, high = max(low, legal[0]), min(high, legal[1])
            if (other.name, t.name) in overlaps:
                legal = overlaps[other.name, t.name]
                low, high = max(low, -legal[1]), min(high, -legal[0])
            if low + 1 < high:
                found.append((low + at - begin, high + at - begin))
    return found


def least(shapes: Sequence[Shape], overlaps: Overlaps, tries: int = TRIES, alignment: int = ALIGNMENT) -> Placement:
    """A placement with a small arena in which pairs overlap as `overlaps` allows."""
    count = len(shapes)
    forbidden: list[list[_Forbidden]] = [[] for _ in shapes]
    for k in range(count):
        for j in range(k):
            for low, high in distances(shapes[j].runs, shapes[k].runs, overlaps, alignment):
                forbidden[k].append(_Forbidden(j, low, high))
                forbidden[j].append(_Forbidden(k, -high, -low))
    sizes = [max(at + aligned(t.size, alignment) for at, t in s.runs) for s in shapes]
    bound = reduced_bound(shapes, overlaps, alignment)
    best: tuple[int, list[int], list[int]] | None = None
    for order in _orders(shapes, sizes):
        peak, offsets = _placed(order, forbidden, sizes, alignment)
        if best is None or peak < best[0]:
            best = (peak, offsets, order)
    if best is None:
        return Placement({}, 0)
    random = Random(0)
    peak, offsets, order = best
    for _ in range(tries):
        if best[0] <= bound:
            break
        changed = _with_peak_earlier(order, offsets, sizes, peak, random)
        found, at = _placed(changed, forbidden, sizes, alignment)
        # Equal ones are taken, worse ones now and then: the arena has many orders of the same peak.
        if found <= peak or random.random() < 0.02:
            peak, offsets, order = found, at, changed
        if found < best[0]:
            best = (found, at, changed)
    return Placement({s.name: o for s, o in zip(shapes, best[1], strict=True)}, best[0])


def reduced_bound(shapes: Sequence[Shape], overlaps: Overlaps, alignment: int = ALIGNMENT) -> int:
    """What no placement can go below: what dies into another counts until the step before."""
    runs = [t for s in shapes for _, t in s.runs]
    dying = {a for a, _ in overlaps}
    kept = [Lifetime(t.name, t.size, t.first, t.last - (t.name in dying)) for t in runs]
    return lower_bound([t for t in kept if t.first <= t.last], alignment)


def _placed(
    order: Sequence[int], forbidden: Sequence[Sequence[_Forbidden]], sizes: Sequence[int], alignment: int
) -> tuple[int, list[int]]:
    """The peak and the offsets when each memory goes as low as those before it allow."""
    offsets, peak = [-1] * len(order), 0
    for k in order:
        intervals = sorted([(f.low + offsets[f.other], f.high + offsets[f.other]) for f in forbidden[k]
                            if offsets[f.other] >= 0])  # fmt: skip
        offset = 0
        for low, high in intervals:
            if low < offset < high:
                offset = aligned(high, alignment)
        offsets[k] = offset
        peak = max(peak, offset + sizes[k])
    return peak, offsets


def _orders(shapes: Sequence[Shape], sizes: Sequence[int]) -> list[list[int]]:
    hulls = [s.hull for s in shapes]
    numbers = range(len(shapes))
    keys = (
        lambda k: (-sizes[k], hulls[k].first, k),
        lambda k: (-sizes[k], -hulls[k].first, k),
        lambda k: (-sizes[k] * (hulls[k].last - hulls[k].first + 1), k),
        lambda k: (hulls[k].first, -sizes[k], k),
        lambda k: (-hulls[k].last, -sizes[k], k),
        lambda k: (hulls[k].first - hulls[k].last, -sizes[k], k),
    )
    return [sorted(numbers, key=key) for key in keys]


def _with_peak_earlier(
    order: Sequence[int], offsets: Sequence[int], sizes: Sequence[int], peak: int, random: Random
) -> list[int]:
    """The order with a memory that ends at the peak, or any, further in front."""
    top = [k for k in order if offsets[k] + sizes[k] == peak]
    moved = random.choice(top) if random.random() < 0.7 else random.choice(order)
    rest = [k for k in order if k != moved]
    rest.insert(random.randrange(order.index(moved) + 1) if random.random() < 0.8 else random.randrange(len(order)),
                moved)  # fmt: skip
    return rest
