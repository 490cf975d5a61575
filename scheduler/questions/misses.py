"""How many lines a cache of a given size fetches under a schedule, predicted from footprints.

A loop whose one iteration touches no more than the cache holds finds, in each iteration, what the one before left
(least recently used lines are replaced, and only those of two iterations are in question); what the loop around it
left is gone. So every array is fetched once in each execution of the outermost such loops: the volume of data of
Wolf & Lam ("A Data Locality Optimizing Algorithm", PLDI 1991), counted exactly. A cache is taken to be fully
associative, rows of arrays to start on lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.closed_forms.counting import count_or_bound, parametric_image
from polyc.poly.errors import ScheduleError
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Node, Promote, Sequence
from polyc.scheduler.arguments import positive
from polyc.scheduler.questions.counts import Region, region

Misses = dict[str, float]
Part = Mapping[str, isl.Set]  # the instances of each statement that a part of a tree runs
PLACES = 4  # in an iteration, from which reuse is looked at


def predicted_misses(scop: Scop, tree: Node, capacity: int, line: int) -> Misses:
    """Lines that each array's accesses fetch, from an empty cache; buffers of the tree are not counted.

    Args:
        scop: with fixed sizes.
        capacity: bytes that the cache holds.
        line: bytes of a line.

    Raises:
        ScheduleError: sizes are free, or depend on data.
        CountingError: a footprint is too hard.
    """
    if scop.params or any(s.dynamic for s in scop.statements.values()):
        raise ScheduleError(f"the misses of {scop.name} are not known: its sizes are not fixed numbers")
    positive(line, "size of a cache line")
    if capacity < line:
        raise ScheduleError(f"a cache of {capacity} bytes does not hold a line of {line}")
    return Counter(scop, tree, capacity // line, line).of(tree, None, everything(scop))


def everything(scop: Scop) -> Part:
    """All instances of all statements."""
    return {name: s.domain for name, s in scop.statements.items()}


def narrowed(part: Part, to: Filter) -> Part:
    """What a filter lets through."""
    return {s: d.intersect(to.domain[s]) for s, d in part.items() if s in to.domain}


class Counter:
    """Counts for one schedule; `room` is the number of lines that the cache holds."""

    def __init__(self, scop: Scop, tree: Node, room: int, line: int) -> None:
        self.scop, self.tree, self.room = scop, tree, room
        self.lines = {
            (a.stmt, k): a.map.apply_range(_line_map(scop, a.array, line)) for k, a in enumerate(accesses(scop))
        }

    def of(self, node: Node, around: str | None, part: Part) -> Misses:
        """Of all executions of a part of the tree, which stands right inside the loop `around`."""
        if isinstance(node, Band):
            return self._band(node, 0, around, part)
        if isinstance(node, Sequence):
            return _sum((1.0, self.of(f, around, part)) for f in node.filters)
        if isinstance(node, Filter):
            return self.of(node.child, around, narrowed(part, node))
        if isinstance(node, Promote):
            return self.of(node.child, around, part)
        return self._fetched_once(around, part)

    def _band(self, band: Band, k: int, around: str | None, part: Part) -> Misses:
        """Of the loops of a band from the one at `k` on."""
        if k == len(band.members):
            return self.of(band.child, around, part)
        loop = band.members[k].name
        kept = self._kept(loop, band.members[k + 1].name if k + 1 < len(band.members) else None, part)
        once = self._fetched_once(around, part) if kept > 0.0 else {}
        return _sum([(kept, once), (1.0 - kept, self._band(band, k + 1, loop, part) if kept < 1.0 else {})])

    def _kept(self, loop: str, inner: str | None, part: Part) -> float:
        """The share of what an iteration of the loop touches again that is still in the cache."""
        here = region(self.scop, self.tree, loop)
        if inner is None:
            return float(self._most(here, part) <= self.room)
        windows = _windows(here, region(self.scop, self.tree, inner))
        return sum(self._most(w, part) <= self.room for w in windows) / len(windows)

    def _most(self, here: Region, part: Part) -> int:
        """The most lines that a region touches."""
        images = self.images(here, part)
        return sum(count_or_bound(parametric_image(i, here.names), here.context).largest() for i in images.values())

    def _fetched_once(self, loop: str | None, part: Part) -> Misses:
        """Each line once in each iteration of the loop (and of those around it)."""
        images = self.images(region(self.scop, self.tree, loop), part)
        return {array: float(count_or_bound(i.wrap().flatten())()) for array, i in images.items()}

    def images(self, here: Region, part: Part) -> Mapping[str, isl.Map]:
        """`{ [loop values] -> line }` of each array that these instances touch there."""
        found: dict[str, isl.Map] = {}
        for k, a in enumerate(accesses(self.scop)):
            if a.stmt in part and a.stmt in here.times:
                touched = here.times[a.stmt].intersect_range(part[a.stmt]).apply_range(self.lines[a.stmt, k])
                found[a.array] = found[a.array].union(touched) if a.array in found else touched
        return {array: i.coalesce() for array, i in found.items()}


def _line_map(scop: Scop, array: str, line: int) -> isl.Map:
    """From elements to lines: several neighbours in a row are one."""
    a = scop.arrays[array]
    names = [f"e{k}" for k in range(len(a.shape))]
    many = max(1, line // a.dtype.bytes)
    to = [*names[:-1], f"floor({names[-1]} / {many})"] if names and many > 1 else names
    return isl.Map(f"{{ {array}[{', '.join(names)}] -> {array}[{', '.join(to)}] }}")


def _sum(parts: Iterable[tuple[float, Misses]]) -> Misses:
    total: Misses = {}
    for share, part in parts:
        for array, n in part.items():
            total[array] = total.get(array, 0.0) + share * n
    return total


def _windows(here: Region, inside: Region) -> list[Region]:
    """What runs between two uses in following iterations of a loop: from a place in one to that place in the next.

    The places are values of the next loop inside it (`inside`).
    """
    values = None
    for t in inside.times.values():
        domain = t.domain()
        values = domain if values is None else values.union(domain)
    assert values is not None
    last = len(inside.names) - 1
    low, high = int(values.dim_min_val(last).to_python()), int(values.dim_max_val(last).to_python())
    outer = "".join(f"x{k}, " for k in range(last - 1))
    found = []
    for cut in sorted({low + (high - low + 1) * (2 * k + 1) // (2 * PLACES) for k in range(PLACES)}):
        window = isl.Map(
            f"{{ [{outer}t] -> [{outer}t, y] : y >= {cut}; [{outer}t] -> [{outer}u, y] : u = t + 1 and y < {cut} }}"
        )
        found.append(replace(here, times={s: window.apply_range(t) for s, t in inside.times.items()}))
    return found
