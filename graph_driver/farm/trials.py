"""Tuning on a farm: the same trials in the same order for each kernel as on one machine, several at a time.

Each kernel's search asks for one trial after the other. Several searches run side by side, and where workers are still
idle, trials that will probably be asked for are run ahead: their times are there when the search comes to them. What is
chosen depends on the times alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import count

from polyc.graph_driver.farm import onworker
from polyc.graph_driver.farm.farm import Answer, Farm, Work
from polyc.graph_driver.tuning.kernels import Kernel
from polyc.graph_driver.tuning.trial import DIED, LATE, Times, from_text
from polyc.graph_driver.tuning.tune import Asked, Trial, Tuning, tuning
from polyc.graph_driver.worker.database import Record
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass
from polyc.poly.target import Target

WAIT = 1.0
"""Seconds of waiting for an answer until the number of workers is looked at again."""

Progress = Callable[[str, int, int], None]
"""Called with a kernel's label, its trials that are done, and how many there will be."""


@dataclass
class Search:
    """A kernel's search: where it is, and what it waits for."""

    label: str
    steps: Tuning
    asked: Asked | None = None
    record: Record | None = None

    def go_on(self, times: Times | None = None) -> None:
        """On to the next trial, or to the end. Raises `PolycError`."""
        try:
            self.asked = next(self.steps) if times is None else self.steps.send(times)
        except StopIteration as end:
            self.asked, self.record = None, end.value


class Trials:
    """Trials of several searches on a farm."""

    def __init__(self, farm: Farm, needs: str, limit: float) -> None:
        self.farm, self.needs, self.limit = farm, needs, limit
        self.known: dict[Trial, Times] = {}
        self.given: set[Trial] = set()
        self.ran = 0
        self._of: dict[int, tuple[Trial, Work]] = {}
        self._suspected: dict[Trial, Times] = {}

    def give(self, trial: Trial, label: str, avoid: frozenset[str] = frozenset()) -> None:
        """Start a trial, if it has not been started. Raises `BuildError`."""
        if trial in self.given or trial in self.known:
            return
        text = json.dumps({"job": asdict(trial.job), "limit": self.limit})
        work = Work(onworker.trial, text, self.needs, self.limit, label, avoid)
        self._of[id(work)] = trial, work
        self.given.add(trial)
        self.farm.give(work)

    def take(self, seconds: float) -> None:
        """Wait for a trial. Raises `BuildError`."""
        answer = self.farm.take(seconds)
        if answer is None:
            return
        trial, work = self._of.pop(id(answer.work))
        self.given.discard(trial)
        times = _times(answer)
        self.ran += 1
        if trial not in self._suspected and times.error.startswith((DIED, LATE)):
            # That may be the worker's fault: a second worker decides.
            self._suspected[trial] = times
            self.give(trial, work.label, frozenset({answer.worker}))
        else:
            self.known[trial] = times


def _times(answer: Answer) -> Times:
    """Raises `BuildError`: the worker cannot do trials at all."""
    if answer.error:
        raise BuildError(f"{answer.work.label}: {answer.error}; what was finished is kept")
    found = from_text(answer.text)
    if found is None:
        raise BuildError(f"{answer.work.label}: the worker {answer.worker} answered something that is no trial")
    return found


def tune_on(
    farm: Farm, kernels: Sequence[Kernel], target: Target, threads: int, trials: int, limit: float,
    progress: Progress | None = None, seen: Callable[[float, float], None] | None = None,
) -> list[Record]:  # fmt: skip
    """The records of kernels, tuned by trials on the farm's workers that have the CPU of `target`.

    All outcomes go into the database of this process as they come, and `polyc tune` and this go on where the other
    stopped. `seen(rate, best)`: trials a second so far, and the best ratio to untuned.

    Raises:
        ScheduleError: sizes are not fixed. BuildError: the database cannot be written, there are no workers that suit,
            the scheduler is gone.
    """
    at = Trials(farm, farm.need(target), limit)
    left = iter(enumerate(kernels))
    searches: dict[int, Search] = {}
    done: dict[int, Record] = {}
    start = time.monotonic()
    while len(done) < len(kernels):
        _start(at, searches, left, done, lambda k: tuning_of(kernels[k], target, threads, trials, progress))
        if len(done) == len(kernels):
            break
        _guess(at, searches)
        at.take(WAIT)
        for k, search in list(searches.items()):
            _advance(at, search)
            if search.record is not None:
                done[k] = search.record
                del searches[k]
        if seen is not None:
            best = max((t.ratio for t in at.known.values() if not t.error), default=1.0)
            seen(at.ran / max(time.monotonic() - start, 1e-9), best)
    farm.drop()
    return [done[k] for k in range(len(kernels))]


def tuning_of(kernel: Kernel, target: Target, threads: int, trials: int, progress: Progress | None) -> Search:
    """The search of a kernel, before its first step."""

    def step(_: str, ran: int, total: int) -> None:
        if progress is not None:
            progress(kernel.label, ran, total)

    return Search(kernel.label, tuning(kernel.scop, target, threads, trials, step))


def _start(
    at: Trials, searches: dict[int, Search], left: Iterator[tuple[int, Kernel]], done: dict[int, Record],
    make: Callable[[int], Search],
) -> None:  # fmt: skip
    """More searches, while workers are idle."""
    while len(at.given) < max(1, at.farm.slots(at.needs)):
        following = next(left, None)
        if following is None:
            return
        k = following[0]
        search = make(k)
        search.go_on()
        _advance(at, search)
        if search.record is not None:
            done[k] = search.record
        else:
            searches[k] = search


def _advance(at: Trials, search: Search) -> None:
    """Give a search the times that it waits for, as long as they are there; else have its trial run."""
    while search.asked is not None and search.asked.trial in at.known:
        search.go_on(at.known[search.asked.trial])
    if search.asked is not None:
        at.give(search.asked.trial, search.label)


def _guess(at: Trials, searches: dict[int, Search]) -> None:
    """Trials ahead of the searches, while workers are idle: as many of each."""
    for many in count(1):
        idle = at.farm.slots(at.needs) - len(at.given)
        if idle <= 0 or many > at.farm.slots(at.needs):
            return
        for search in searches.values():
            for trial in search.asked.ahead(many) if search.asked is not None else ():
                if idle > 0 and trial not in at.given and trial not in at.known:
                    at.give(trial, search.label)
                    idle -= 1
