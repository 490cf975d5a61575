"""Planned eviction: the program is run through once with memory for so many bytes; where that is full, something is
dropped, and made again before its next use.

It is dynamic tensor rematerialization (Kirisame et al., 2006.09616) with the future known: what is cheap to make again,
large, and not needed for long goes first. The score of a value is its cost (with that of what was dropped before it and
would have to be made again, too) by its size and the time until its next use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from polyc.graph_driver.rematerialising.program import DoesNotFit, Program

Score = Callable[[float, int, int], float]
"""Of cost, bytes and steps until the next use; the lowest goes first."""

SCORES: dict[str, Score] = {
    "cost by size and time": lambda cost, size, distance: cost / (size * distance),
    "cost by size": lambda cost, size, distance: cost / size,
    "time": lambda cost, size, distance: -distance,
    "cost by time": lambda cost, size, distance: cost / distance,
}
MOST_REPEATS = 6
"""Steps in the order for each of the program; what repeats more is given up."""


def evicting(program: Program, limit: int, score: Score) -> list[int]:
    """An order of steps that needs at most `limit` bytes.

    Raises:
        DoesNotFit: with this score none was found.
    """
    return _Run(program, limit, score).order()


class _Run:
    def __init__(self, program: Program, limit: int, score: Score) -> None:
        self.program, self.limit, self.score = program, limit, score
        self.there: set[str] = set()  # values that take memory now
        self.made: set[int] = set()  # steps that have run
        self.pinned: dict[str, int] = {}  # what is being read, and how often
        self.found: list[int] = []
        self.now = 0
        self.full = 0

    def order(self) -> list[int]:
        for k in range(len(self.program.steps)):
            self.now = k
            self.run(k)
            for v in (*self.program.steps[k].reads, *self.program.steps[k].makes):
                if v in self.there and self.next_use(v) is None:
                    self.drop(v)
        return self.found

    def run(self, k: int) -> None:
        """Run a step; what it reads and is not there is made before."""
        step = self.program.steps[k]
        if k in self.made and not step.again:
            raise DoesNotFit(f"step {k} may run only once")
        if len(self.found) > MOST_REPEATS * len(self.program.steps):
            raise DoesNotFit("steps are repeated too often")
        reads = [v for v in dict.fromkeys(step.reads) if v in self.program.sizes and v in self.program.makers]
        for v in reads:
            self.pinned[v] = self.pinned.get(v, 0) + 1
        for v in reads:
            if v not in self.there:
                self.run(self.program.makers[v])
        new = [v for v in step.makes if v in self.program.sizes and v not in self.there]
        self.make_room(self.program.size(new))
        self.there |= {*new}
        self.full += self.program.size(new)
        self.found.append(k)
        self.made.add(k)
        for v in reads:
            self.pinned[v] -= 1
        for v in new:  # what a repeated step makes beside what is asked for
            if not self.pinned.get(v) and self.next_use(v) is None and v not in self.program.steps[self.now].makes:
                self.drop(v)

    def next_use(self, v: str) -> int | None:
        """The next step that reads a value after the present one; None when none does."""
        uses = self.program.uses.get(v, [])
        at = bisect_right(uses, self.now)
        if at < len(uses):
            return uses[at]
        return len(self.program.steps) if v in self.program.kept else None

    def drop(self, v: str) -> None:
        self.there.discard(v)
        self.full -= self.program.sizes[v]

    def make_room(self, size: int) -> None:
        now = self.program.steps[self.now]
        while self.full + size > self.limit:
            best, worst = None, 0.0
            for v in sorted(self.there):
                if self.pinned.get(v) or not self.program.steps[self.program.makers[v]].again:
                    continue
                if v in now.makes and self.program.makers[v] == self.now:
                    continue
                following = self.next_use(v)
                distance = 1 if v in now.reads else max(1, (following or len(self.program.steps)) - self.now)
                rating = self.score(self.cost(v), max(self.program.sizes[v], 1), distance)
                if best is None or rating < worst:
                    best, worst = v, rating
            if best is None:
                raise DoesNotFit(f"step {self.now} needs more than there is")
            self.drop(best)

    def cost(self, v: str) -> float:
        """What it costs to make a value again, with all that was dropped and has to be made for that."""
        total, waiting, seen = 0.0, [self.program.makers[v]], set[int]()
        while waiting:
            k = waiting.pop()
            if k in seen:
                continue
            seen.add(k)
            total += self.program.steps[k].cost
            for r in self.program.steps[k].reads:
                if r in self.program.sizes and r in self.program.makers and r not in self.there:
                    waiting.append(self.program.makers[r])
        return total
