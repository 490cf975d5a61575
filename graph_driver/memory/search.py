"""Exact memory planning: branch and bound over placements that rest on each other.

Time is cut into sections (the maximal sets of tensors alive together); each has a floor, up
to which it is full or lost, and the bytes still to be placed on it. A solution can be pushed
down until every tensor rests on another or on the ground, so it is enough to fill valleys:
take a section none of whose remaining tensors can start lower elsewhere, put one of them on its
floor, or leave a gap there up to the next height at which anything can come to rest.

    bound      floor + remaining bytes of a section above the capacity: back up
    inference  a floor rises to the lowest start of the section's remaining tensors
    parts      sections that no remaining tensor joins are solved one after another
    memory     (remaining tensors, floors) that failed once fail again wherever no floor is lower
    choice     the valley with fewest candidates over the root of the failures that its section has seen;
               restarts keep these weights (Boussemart et al., "Boosting systematic search by
               weighting constraints", ECAI 2004) and change the order of candidates

That pushed-down solutions suffice, bounds by section and orders by lifetime and area are from
Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine
Learning", ASPLOS 2023; the valley search with learnt weights is ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from math import gcd
from time import thread_time
from typing import NamedTuple

from polyc.graph_driver.memory.greedy import best_fit_in_time, greedy_by_size, two_cursor
from polyc.graph_driver.memory.lifetimes import ALIGNMENT, Lifetime, Placement, aligned, lower_bound

NODES = 6_000  # of all restarts together, for one capacity
FIRST_RUN = 500.0  # nodes of the first restarts
GROWTH = 1.2  # of the number of nodes from restart to restart
BISECTIONS = 8
FADING = 0.95  # of learnt weights
REMEMBERED = 40  # failed floors for one set of remaining tensors
INFINITE = 1 << 62


class _Kept(NamedTuple):
    """The state of some sections, to come back to."""

    begin: int
    end: int
    starts: list[tuple[int, int]]
    floors: list[int]
    rests: list[int]
    opens: list[list[int]]


class _Limit(Exception):
    """The search has used up its nodes."""


def fit(
    tensors: Sequence[Lifetime], capacity: int, nodes: int = NODES, seconds: float | None = None,
    alignment: int = ALIGNMENT,
) -> tuple[Placement | None, bool]:  # fmt: skip
    """A placement within `capacity` bytes, and whether the answer is final.

    `(None, True)`: there is none; `(None, False)`: not found within `nodes` steps of the
    search (the same every time) or `seconds` of processor time.
    """
    with _deep(50 * len(tensors)):
        return _fit(_Search(tensors, capacity, alignment), nodes, seconds)


@contextmanager
def _deep(levels: int) -> Iterator[None]:
    """Allow the search to nest so deep (frames of Python functions need no C stack)."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + levels)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _fit(search: _Search, nodes: int, seconds: float | None) -> tuple[Placement | None, bool]:
    deadline = None if seconds is None else thread_time() + seconds
    limit, used = FIRST_RUN, 0
    orders = _orders(search)
    while True:
        for order in orders:
            search.reset(order, int(min(limit, nodes - used)), deadline)
            try:
                found = search.parts(0, len(search.members))
            except _Limit:
                used += search.nodes
                if used >= nodes or (deadline is not None and thread_time() > deadline):
                    return None, False
                continue
            return (search.placement() if found else None), True
        limit = GROWTH * limit + 10


def exact(
    tensors: Sequence[Lifetime], nodes: int = NODES, alignment: int = ALIGNMENT, bisections: int = BISECTIONS
) -> Placement:
    """The best placement that the search finds: optimal when it ends within its nodes.

    The lower bound is tried first, then it is bisected towards the best quick planner;
    capacities that could not be decided count as too small.
    """
    quick = (greedy_by_size, best_fit_in_time, two_cursor)
    best = min((p(tensors, alignment) for p in quick), key=lambda p: p.peak)
    low, unit = lower_bound(tensors, alignment), alignment
    first = True
    for _ in range(bisections):
        if low >= best.peak:
            break
        middle = low if first else low + (best.peak - unit - low) // (2 * unit) * unit
        found, _ = fit(tensors, middle, nodes, None, alignment)
        if found is not None and found.peak < best.peak:
            best = found
        else:
            low = middle + unit
        first = False
    return best


def _orders(search: _Search) -> list[list[int]]:
    """Ranks of the tensors under several rules, each largest first."""
    facts = search.facts
    rules: list[Callable[[tuple[int, int, int, int]], tuple[int, ...]]] = [
        lambda f: (-f[0], -f[0] * f[1], -f[2]),
        lambda f: (-f[2], -f[0] * f[1], -f[0]),
        lambda f: (-f[2], -f[0], -f[0] * f[1]),
        lambda f: (-f[1], -f[0] * f[1], -f[0]),
        lambda f: (-f[3], -f[0] * f[1], -f[2]),
        lambda f: (-f[0] * f[1], -f[1], -f[0]),
    ]
    found = []
    for rule in rules:
        order = sorted(range(len(facts)), key=lambda i: (rule(facts[i]), i))
        rank = [0] * len(facts)
        for place, i in enumerate(order):
            rank[i] = place
        found.append(rank)
    return found


class _Search:
    """The state of one descent; everything is undone on the way back."""

    def __init__(self, tensors: Sequence[Lifetime], capacity: int, alignment: int) -> None:
        self.tensors = [t for t in tensors if t.size > 0]
        self.idle = [t for t in tensors if t.size <= 0]
        sizes = [aligned(t.size, alignment) for t in self.tensors]
        self.unit = reduce(gcd, sizes, 0) or alignment
        self.size = [s // self.unit for s in sizes]
        self.capacity = capacity // self.unit
        sections = _sections(self.tensors)
        self.members = sections
        self.low = [len(sections)] * len(sizes)
        self.high = [0] * len(sizes)
        for s, inside in enumerate(sections):
            for i in inside:
                self.low[i] = min(self.low[i], s)
                self.high[i] = max(self.high[i], s + 1)
        total = [sum(self.size[i] for i in inside) for inside in sections]
        self.total = total
        self.facts = [
            (t.last - t.first + 1, n, max(total[a:b]), b - a)
            for t, n, a, b in zip(self.tensors, self.size, self.low, self.high, strict=True)
        ]
        self.weight = [1.0] * len(sections)
        self.rank: list[int] = []
        self.nodes, self.limit = 0, 0
        self.deadline: float | None = None

    def reset(self, rank: list[int], limit: int, deadline: float | None) -> None:
        """Start again with what was learnt."""
        self.rank, self.limit, self.nodes, self.deadline = rank, limit, 0, deadline
        self.offset = [-1] * len(self.size)
        self.start = [0] * len(self.size)  # lowest possible offset
        self.floor = [0] * len(self.members)
        self.rest = list(self.total)
        self.open = [sorted(inside, key=lambda i: rank[i]) for inside in self.members]
        self.failed: dict[tuple[int, ...], list[list[int]]] = {}
        self.weight = [1.0 + FADING * (w - 1.0) for w in self.weight]

    def placement(self) -> Placement:
        """The offsets found, in bytes."""
        offsets = {t.name: self.offset[i] * self.unit for i, t in enumerate(self.tensors)}
        peak = max((o + n for o, n in zip(self.offset, self.size, strict=True)), default=0) * self.unit
        return Placement(offsets | {t.name: 0 for t in self.idle}, peak)

    def parts(self, x: int, y: int) -> bool:
        """Solve sections x..y-1, cut where no remaining tensor crosses; the tightest part first."""
        found: list[tuple[int, int]] = []
        begin, reach, used = x, x, False
        for s in range(x, y):
            if s >= reach and s > begin:
                if used:
                    found.append((begin, s))
                begin, used = s, False
            if self.rest[s]:
                used = True
                for i in self.open[s]:
                    if self.high[i] > reach:
                        reach = self.high[i]
            reach = max(reach, s + 1)
        if used:
            found.append((begin, y))
        if len(found) < 2:
            return not found or self.solve(*found[0])
        found.sort(key=lambda p: min(self.capacity - self.floor[s] - self.rest[s] for s in range(*p) if self.rest[s]))
        kept: _Kept | None = None
        for p in found:
            if kept is None:
                kept = self._snapshot(x, y)
            if not self.solve(*p):
                self._restore(kept)
                return False
        return True

    def _snapshot(self, x: int, y: int) -> _Kept:
        inside = {i for s in range(x, y) for i in self.open[s]}
        opens = [list(o) for o in self.open[x:y]]
        return _Kept(x, y, [(i, self.start[i]) for i in inside], self.floor[x:y], self.rest[x:y], opens)

    def _restore(self, kept: _Kept) -> None:
        for i, start in kept.starts:
            self.start[i], self.offset[i] = start, -1
        x, y = kept.begin, kept.end
        self.floor[x:y], self.rest[x:y], self.open[x:y] = kept.floors, kept.rests, kept.opens

    def solve(self, x: int, y: int) -> bool:
        """Place everything that is left in sections x..y-1 (which hang together)."""
        left = {i for s in range(x, y) for i in self.open[s]}
        if not left:
            return True
        key = tuple(sorted(left))
        floors = [self.floor[s] if self.rest[s] else 0 for s in range(x, y)]
        for known in self.failed.get(key, ()):
            if all(f >= k for f, k in zip(floors, known)):
                return False
        if self._fill(x, y):
            return True
        seen = self.failed.setdefault(key, [])
        if len(seen) < REMEMBERED:
            seen.append(floors)
        return False

    def _fill(self, x: int, y: int) -> bool:
        if self.nodes >= self.limit:
            raise _Limit
        if self.deadline is not None and not self.nodes % 64 and thread_time() > self.deadline:
            raise _Limit
        self.nodes += 1
        valley, candidates = self._valley(x, y)
        floor = self.floor[valley]
        smallest = INFINITE
        tried: set[tuple[int, int, int]] = set()
        for i in candidates:
            form = (self.low[i], self.high[i], self.size[i])
            if form in tried:
                continue
            tried.add(form)
            smallest = min(smallest, self.size[i])
            if not self._rests(i, floor):
                continue
            undo: list[tuple[int, int, int]] = []
            opened = self._put(i, floor, undo)
            if self._infer(undo, x, y) and self.parts(x, y):
                return True
            self._take(i, opened, undo)
        up = self._next_height(valley, floor)
        # A gap in which a candidate would fit need not be left: it could hold it.
        if up >= INFINITE or up + self.rest[valley] > self.capacity or floor + smallest <= up:
            return False
        undo = []
        self._raise(valley, up, undo)
        if self._infer(undo, x, y) and self.solve(x, y):
            return True
        self._undo(undo)
        return False

    def _valley(self, x: int, y: int) -> tuple[int, list[int]]:
        """The section to fill next and the tensors that can lie on its floor."""
        best, chosen, lying = 1e300, -1, [0]
        floor, start, low, high = self.floor, self.start, self.low, self.high
        for s in range(x, y):
            if not self.rest[s]:
                continue
            f = floor[s]
            here = [i for i in self.open[s] if start[i] == f]
            score = len(here) / self.weight[s] ** 0.5
            if score < best and all(min(floor[low[i] : high[i]]) >= f for i in self.open[s]):
                best, chosen, lying = score, s, here
        return chosen, lying

    def _rests(self, i: int, floor: int) -> bool:
        """Whether the tensor would lie on another (equal lifetimes stacked in one order only) or on the ground."""
        if floor == 0:
            return True
        rests = False
        a, b, offset, size = self.low[i], self.high[i], self.offset, self.size
        for s in range(a, b):
            for j in self.members[s]:
                if offset[j] >= 0 and offset[j] + size[j] == floor:
                    if self.low[j] == a and self.high[j] == b and self.rank[j] > self.rank[i]:
                        return False
                    rests = True
        return rests

    def _put(self, i: int, floor: int, undo: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        self.offset[i] = floor
        opened = []
        for s in range(self.low[i], self.high[i]):
            at = self.open[s].index(i)
            del self.open[s][at]
            opened.append((s, at))
            self.rest[s] -= self.size[i]
        for s in range(self.low[i], self.high[i]):
            self._raise(s, floor + self.size[i], undo)
        return opened

    def _take(self, i: int, opened: list[tuple[int, int]], undo: list[tuple[int, int, int]]) -> None:
        self._undo(undo)
        for s, at in opened:
            self.open[s].insert(at, i)
            self.rest[s] += self.size[i]
        self.offset[i] = -1

    def _raise(self, s: int, height: int, undo: list[tuple[int, int, int]]) -> None:
        """Lift a floor, and with it the lowest starts of the tensors on it."""
        undo.append((0, s, self.floor[s]))
        self.floor[s] = height
        start = self.start
        for j in self.open[s]:
            if start[j] < height:
                undo.append((1, j, start[j]))
                start[j] = height

    def _undo(self, undo: list[tuple[int, int, int]]) -> None:
        for kind, k, old in reversed(undo):
            if kind:
                self.start[k] = old
            else:
                self.floor[k] = old

    def _infer(self, undo: list[tuple[int, int, int]], x: int, y: int) -> bool:
        """Lift floors to the lowest start above them; False when a section cannot hold its rest."""
        start, floor, rest, capacity = self.start, self.floor, self.rest, self.capacity
        changed = True
        while changed:
            changed = False
            for s in range(x, y):
                if not rest[s]:
                    continue
                lowest = min([start[i] for i in self.open[s]])
                if lowest > floor[s]:
                    self._raise(s, lowest, undo)
                    changed = True
                if floor[s] + rest[s] > capacity:
                    self.weight[s] += 1.0
                    return False
        return True

    def _next_height(self, valley: int, floor: int) -> int:
        """The lowest height above a floor on which one of the valley's tensors could come to rest."""
        up = INFINITE
        linked = {s for i in self.open[valley] for s in range(self.low[i], self.high[i])}
        linked.discard(valley)
        for s in linked:
            if self.floor[s] > floor:
                up = min(up, self.floor[s])
                continue
            for j in self.open[s]:
                if not self.low[j] <= valley < self.high[j]:
                    up = min(up, floor + self.size[j])
        return up


def _sections(tensors: Sequence[Lifetime]) -> list[list[int]]:
    """The maximal sets of tensors alive together, in order of time."""
    sets: list[list[int]] = []
    for step in sorted({t.first for t in tensors}):
        sets.append([i for i, t in enumerate(tensors) if t.first <= step <= t.last])
    kept: list[list[int]] = []
    for k, inside in enumerate(sets):
        if k + 1 < len(sets) and set(inside) <= set(sets[k + 1]):
            continue
        if kept and set(inside) <= set(kept[-1]):
            continue
        kept.append(inside)
    return kept
