"""What each rank does by itself: calls of a plan in which kernels run and no message moves.

The messages of one real call are kept. In a rehearsal they are put where messages would write them, so that kernels
see the same values, and a rank waits for no other; all ranks rehearse at once, so that they share caches, memory and
cores as in a real call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.graph_driver.communication.ranks import Moment, World, world
from polyc.poly.records import dataclass

TOGETHER = 300e-6
"""Seconds from when all ranks have agreed on a beginning to it: more than they need to hear of it."""


@dataclass(frozen=True)
class Step:
    """`seconds` of a rank's own work up to message number `message`, or up to the `Wait` for it. `begun`: the program
    goes on."""

    message: int
    seconds: float
    waits: bool = False
    begun: bool = False


@dataclass(frozen=True)
class Timeline:
    """A rank's call: what it does up to each message, and seconds of the rest."""

    steps: tuple[Step, ...]
    rest: float

    @property
    def seconds(self) -> list[float]:
        """Of each step, and of the rest."""
        return [*(s.seconds for s in self.steps), self.rest]

    def with_seconds(self, seconds: Sequence[float]) -> Timeline:
        """The same steps, of these seconds: the call of another rank, or another time."""
        *steps, rest = map(float, seconds)
        return Timeline(tuple(replace(s, seconds=t) for s, t in zip(self.steps, steps, strict=True)), rest)


def together(ranks: World) -> float:
    """Return on all ranks of one machine at once, at the time that is given (`time.perf_counter`).

    Raises:
        RankError: a rank is gone.
    """
    when = float(ranks.gathered(np.array([time.perf_counter()]), "beginning together").max()) + TOGETHER
    while time.perf_counter() < when:
        pass
    return when


class Rehearsal:
    """Rehearsals of `call`, a call of a plan with its inputs. `messages`: of the recorded real call; `results`:
    what the last call gave."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.ranks = call, world()
        self._kept: list[np.ndarray | None] = []
        self._next = 0
        self.results: Any = call()  # what only the first call does
        self.messages, _, _ = self._traced(self._record)

    def __call__(self) -> Timeline:
        """Rehearse once; all ranks of one machine do. Raises `RankError`."""
        self._next, when = 0, together(self.ranks)
        moments, waits, end = self._traced(self._replay)
        numbers = {m.what: k for k, m in enumerate(moments)}
        events: list[tuple[float, float, int, bool, bool]] = [
            (m.asked, m.asked if m.begun else m.end, k, False, m.begun) for k, m in enumerate(moments)
        ]
        events += [(come, gone, numbers[what], True, False) for what, come, gone in waits]
        now, steps = when, []
        for come, gone, number, waiting, begun in sorted(events):
            steps.append(Step(number, come - now, waiting, begun))
            now = gone
        return Timeline(tuple(steps), end - now)

    def _traced(self, stand_in: Any) -> tuple[list[Moment], list[tuple[str, float, float]], float]:
        ranks = self.ranks
        ranks.moments, ranks.waits = [], []
        ranks.tracing, ranks.stand_in = True, stand_in
        try:
            self.results = self.call()
            end = time.perf_counter()
        finally:
            ranks.tracing, ranks.stand_in = False, None
        return ranks.moments, ranks.waits, end

    def _record(self, kind: str, y: np.ndarray, work: Callable[[], int]) -> int:
        sent = work()
        self._kept.append(None if kind == "Start" else y.copy())
        return sent

    def _replay(self, kind: str, y: np.ndarray, work: Callable[[], int]) -> int:
        """What a `Start` makes is a result of the model, which no kernel reads: it stays what it was. (A copy would run
        beside kernels, and be taken for theirs.)"""
        kept, self._next = self._kept[self._next], self._next + 1
        if kept is not None:
            np.copyto(y, kept)
        return 0
