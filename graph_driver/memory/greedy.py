"""Planners that place each tensor once.

`greedy_by_size` is Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020; `best_fit_in_time` is the classical allocator run ahead of time;
`two_cursor` keeps long lives at one end of the arena and short ones at the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyc.graph_driver.memory.lifetimes import ALIGNMENT, Lifetime, Placement, Shape, aligned


def greedy_by_size(tensors: Iterable[Lifetime], alignment: int = ALIGNMENT) -> Placement:
    """Offsets, largest tensor first, each in the tightest gap; ties go by first use and name."""
    return _in_order(sorted(tensors, key=lambda t: (-t.size, t.first, t.name)), alignment)


def _tightest_gap(taken: list[tuple[int, int]], size: int) -> int:
    """Start of the smallest gap between the taken ranges that holds `size`, else their end."""
    best, best_room, end = -1, 0, 0
    for start, stop in sorted(taken):
        room = start - end
        if room >= size and (best < 0 or room < best_room):
            best, best_room = end, room
        end = max(end, stop)
    return best if best >= 0 else end


def best_fit_in_time(tensors: Iterable[Lifetime], alignment: int = ALIGNMENT) -> Placement:
    """Offsets in order of first use (larger ones first), each in the tightest gap among what is alive then."""
    order = sorted(tensors, key=lambda t: (t.first, -t.size, t.name))
    return _in_order(order, alignment)


def two_cursor(tensors: Sequence[Lifetime], alignment: int = ALIGNMENT) -> Placement:
    """Tensors that live longer than average from the low end, the others from the high end.

    The arena is the smallest in which the two do not meet: it is widened until every tensor
    of the high end lies above all tensors of the low end that are alive with it.
    """
    if not tensors:
        return Placement({}, 0)
    average = sum(t.last - t.first for t in tensors) / len(tensors)
    long = [t for t in tensors if t.last - t.first > average]
    short = [t for t in tensors if t.last - t.first <= average]
    low, high = best_fit_in_time(long, alignment), best_fit_in_time(short, alignment)
    ends = {t.name: low.offsets[t.name] + aligned(t.size, alignment) for t in long}
    depths = {t.name: high.offsets[t.name] + aligned(t.size, alignment) for t in short}
    meet = [ends[a.name] + depths[b.name] for a in long for b in short if a.meets(b)]
    peak = max([low.peak, high.peak, *meet])
    return Placement({**low.offsets, **{t.name: peak - depths[t.name] for t in short}}, peak)


def greedy_shapes(shapes: Sequence[Shape], alignment: int = ALIGNMENT) -> Placement:
    """Each memory as low as none of its runs meets a run that is alive with it, in the best of some orders.

    Room of a whole whose parts do not exist yet, or are dead, goes to others.
    """
    hulls = {s.name: s.hull for s in shapes}

    def area(s: Shape) -> int:
        return sum(t.size * (t.last - t.first + 1) for _, t in s.runs)

    orders = (
        sorted(shapes, key=lambda s: (-hulls[s.name].size, hulls[s.name].first, s.name)),
        sorted(shapes, key=lambda s: (-area(s), s.name)),
        sorted(shapes, key=lambda s: (hulls[s.name].first - hulls[s.name].last, -hulls[s.name].size, s.name)),
        sorted(shapes, key=lambda s: (hulls[s.name].first, -hulls[s.name].size, s.name)),
        sorted(shapes, key=lambda s: (len(s.runs) == 1, -hulls[s.name].size, s.name)),
    )
    return min((_shapes_in_order(order, alignment) for order in orders), key=lambda p: p.peak)


def _shapes_in_order(shapes: Sequence[Shape], alignment: int) -> Placement:
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[str, int] = {}
    peak = 0
    for shape in shapes:
        # Each clash forbids an open interval of offsets; the lowest offset outside of all is taken.
        forbidden = sorted(
            (begin - at - aligned(t.size, alignment), end - at)
            for at, t in shape.runs
            for begin, end, other in placed
            if other.meets(t)
        )
        offset = 0
        for low, high in forbidden:
            if low < offset < high:
                offset = high
        offset = aligned(offset, alignment)
        offsets[shape.name] = offset
        for at, t in shape.runs:
            end = offset + at + aligned(t.size, alignment)
            placed.append((offset + at, end, t))
            peak = max(peak, end)
    return Placement(offsets, peak)


def _in_order(order: Iterable[Lifetime], alignment: int) -> Placement:
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[str, int] = {}
    for t in order:
        size = aligned(t.size, alignment)
        offset = _tightest_gap([(o, e) for o, e, other in placed if other.meets(t)], size)
        offsets[t.name] = offset
        placed.append((offset, offset + size, t))
    return Placement(offsets, max((e for _, e, _ in placed), default=0))
