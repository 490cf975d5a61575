"""Streams: an input that is what it was, moved along an axis, with new elements at an end.

    x  1 2 3 4 5 6  ->  3 4 5 6 7 8      y = 3 5 7 9 11  ->  7 9 11 13 15     y[i] = x[i] + x[i + 1]

A result moves with its arguments where what makes an element is, instance by instance, what made the element that many
places further before: the same values flow the same way, and no new element is read. The rest is made anew.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

import islpy as isl
import numpy as np

from polyc.graph_driver.incremental.places import INTO, OUT, WITHIN
from polyc.graph_driver.incremental.regions import Region, elements, hull, size, under, whole
from polyc.graph_driver.slices.reshaping import shared_runs
from polyc.poly.access import array_elements
from polyc.poly.origins import Origins, origins
from polyc.poly.records import dataclass
from polyc.poly.rewriting.translations import Key, Moved, Steps, branches, conditions, directions, independent
from polyc.poly.scop import Scop


@dataclass(frozen=True)
class Shift:
    """Of an array: `new[j] = old[j + by]` but in the regions `fresh`, which hold what was not there."""

    by: tuple[int, ...]
    fresh: tuple[Region, ...]

    def move(self, array: np.ndarray) -> None:
        """Put the elements of an array that lies in one piece where they are now; what is in `fresh` is lost."""
        far = sum(n * prod(array.shape[d + 1 :]) for d, n in enumerate(self.by)) * array.itemsize
        kept = array.nbytes - abs(far)
        if kept > 0:
            ctypes.memmove(array.ctypes.data + max(0, -far), array.ctypes.data + max(0, far), kept)

    def under(self, before: Sequence[int], after: Sequence[int]) -> Shift | None:
        """The same under another shape, by rows; None: it is no shift there."""
        by: list[int] = []
        for first, second in shared_runs(before, after):
            if [before[d] for d in first] == [after[d] for d in second]:
                by += [self.by[d] for d in first]
                continue
            outer = next((d for d in first if before[d] > 1), None)
            if any(self.by[d] for d in first if d != outer):
                return None
            far = 0 if outer is None else self.by[outer] * prod(before[outer + 1 : first.stop])
            inner = next((d for d in second if after[d] > 1), None)
            row = 1 if inner is None else prod(after[inner + 1 : second.stop])
            if far % row:
                return None
            by += [far // row if d == inner else 0 for d in second]
        return Shift(tuple(by), tuple(under(r, before, after) for r in self.fresh))


def shift_of(old: np.ndarray, new: np.ndarray) -> Shift | None:
    """The shift along one axis after which most elements of two arrays of unsigned integers are equal; None: none."""
    best: tuple[int, int, int] | None = None
    for axis, n in enumerate(old.shape):
        for sign, (a, b) in ((1, (old, new)), (-1, (new, old))):
            first = b[_along(axis, 0, 1)]
            other = tuple(d for d in range(old.ndim) if d != axis)
            for by in map(int, np.flatnonzero((a == first).all(axis=other))):
                share = by * (old.size // n)
                if by and (best is None or share < best[0]) and _equal_at(a, b, axis, by):
                    best = share, axis, sign * by
                    break
    if best is None:
        return None
    _, along, far = best
    n = old.shape[along]
    side = (n - far, n) if far > 0 else (0, -far)
    fresh = tuple(side if d == along else (0, m) for d, m in enumerate(old.shape))
    return Shift(tuple(far if d == along else 0 for d in range(old.ndim)), (fresh,))


def _equal_at(a: np.ndarray, b: np.ndarray, axis: int, by: int) -> bool:
    n = a.shape[axis]
    return bool(np.array_equal(a[_along(axis, by, n)], b[_along(axis, 0, n - by)]))


def _along(axis: int, begin: int, end: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(begin, end))


def shifted_results(
    scop: Scop, shapes: Mapping[str, tuple[int, ...]], moved: Mapping[str, Shift], changed: Mapping[str, Region]
) -> dict[str, Shift] | None:
    """How the results of a kernel move with arguments that have moved, others having changed; None: none does.

    Raises:
        PolycError: the chains of values have no exact form.
    """
    still: list[Key] = [("element", a, d) for a in scop.args if a not in moved for d in range(len(shapes[a]))]
    targets = {("element", a, d): n for a, shift in moved.items() for d, n in enumerate(shift.by)}
    moves = independent(directions(scop, scop.statements, still), list(targets))
    steps = Steps(moves, list(targets)).to(targets)
    if steps is None:
        return None
    before = Moved(moves, steps)
    found = origins(scop)
    other = {a: s for a, s in _other(moved, changed)}
    seen = found.after(_anew(scop, found, before, other))
    out: dict[str, Shift] = {}
    for name in scop.results:
        by = tuple(sum(n * q for n, q in zip(moves.row(("element", name, d)), steps)) for d in range(len(shapes[name])))
        every = array_elements(scop.arrays[name], ())
        kept = every.intersect(before.set(every, "element")).subtract(_new_results(found, before, name, every, seen))
        box = hull(kept.coalesce())
        if box is None or not any(by) or not elements(name, box).is_subset(kept):
            out[name] = Shift((0,) * len(by), (whole(shapes[name]),))
        else:
            out[name] = Shift(by, tuple(_around(box, shapes[name])))
    return out if any(any(s.by) for s in out.values()) else None


def _other(moved: Mapping[str, Shift], changed: Mapping[str, Region]) -> Iterator[tuple[str, isl.Set]]:
    """By argument the elements that are not the old ones."""
    for a, region in changed.items():
        if a not in moved:
            yield a, elements(a, region)
    for a, shift in moved.items():
        some = elements(a, tuple((0, 0) for _ in shift.by) if shift.by else ())
        for region in shift.fresh:
            some = some.union(elements(a, region))
        yield a, some


def _anew(scop: Scop, found: Origins, before: Moved, other: Mapping[str, isl.Set]) -> dict[str, isl.Set]:
    """By statement the instances that do not do what the instance before the move did."""
    new = {n: s.domain.subtract(before.set(s.domain, "instance")) for n, s in scop.statements.items()}

    def add(name: str, some: Collection[isl.Set]) -> None:
        for points in some:
            new[name] = new[name].union(points)

    for (name, array), reads in found.fed.items():
        add(name, _differs(before, reads, OUT))
        if array in other:
            add(name, [reads.intersect_range(other[array]).domain()])
    for (_, name), sees in found.flow.items():
        add(name, _differs(before, sees.reverse(), WITHIN))
    for name, s in scop.statements.items():
        for holds in conditions(s):
            add(name, _differs(before, holds.intersect(s.domain).identity(), WITHIN))
    for name, some in branches(scop.tree):
        add(name, _differs(before, some.identity(), WITHIN))
    return {
        n: inside
        for n, s in scop.statements.items()
        if not (inside := new[n].intersect(s.domain).coalesce()).is_empty()
    }


def _differs(before: Moved, relation: isl.Map, kinds: tuple[str, str]) -> list[isl.Set]:
    """What is related otherwise before the move."""
    there = before.map(relation, kinds)
    return [relation.subtract(there).domain(), there.subtract(relation).domain()]


def _new_results(found: Origins, before: Moved, name: str, every: isl.Set, seen: Mapping[str, isl.Set]) -> isl.Set:
    """The elements of a result that are made by other instances than before, or by such as do something else."""
    made = found.results_of(seen, {}).get(name, every.subtract(every))
    for stmt, writes in found.last.items():
        if found.arrays[stmt] == name:
            for some in _differs(before, writes.reverse(), INTO):
                made = made.union(some)
    return made


def _around(box: Region, shape: Sequence[int]) -> Iterator[Region]:
    """What an array has beside a box, as boxes."""
    for d, ((low, high), n) in enumerate(zip(box, shape, strict=True)):
        for side in ((0, low), (high, n)):
            region = (*box[:d], side, *whole(shape[d + 1 :]))
            if size(region):
                yield region
