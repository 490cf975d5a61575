"""Tuning one kernel: trials from the model's favourites on, a last comparison, and the record of all of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace

from polyc.graph_driver.tuning.trial import Job, Times, run_apart
from polyc.graph_driver.worker import database
from polyc.graph_driver.worker.database import Record
from polyc.poly import json_io
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.tuning.search import Outcome, best_of, likely, searching
from polyc.scheduler.tuning.space import Candidate, candidates, failure

TRIAL_SECONDS = 0.3  # of runs in a trial
FINAL_SECONDS = 2.0
TIME_LIMIT = 60.0  # seconds of a trial, compiling included
LEAST_GAIN = 0.02  # a schedule is taken when it is faster by this share and by twice the noise
FINALISTS = 3
MOST_NOISY = 3  # processes of a comparison whose noise is larger than the gain, until it counts as none
CONFIRMED = 3  # processes: where arrays lie in memory is part of a time, and another place in each of them

Try = Callable[[Job, float], Times]
Progress = Callable[[str, int, int], None]
Guess = Callable[[int], list["Trial"]]


@dataclass(frozen=True)
class Trial:
    """A trial that is wanted: the `job`, and which repetition of it."""

    job: Job
    repeat: int = 0


@dataclass(frozen=True)
class Asked:
    """What tuning waits for: a trial. `ahead(count)` gives up to `count` trials that it will probably ask for next, for
    who can run several at once."""

    trial: Trial
    ahead: Guess


Tuning = Generator[Asked, Times, Record]
"""Tuning of a kernel for who runs trials elsewhere: yields what it needs, takes the times, returns the record."""


def tune_kernel(
    scop: Scop, target: Target, threads: int, trials: int, limit: float = TIME_LIMIT,
    progress: Progress | None = None, attempt: Try = run_apart,
) -> Record:  # fmt: skip
    """Search schedules of a Scop of fixed sizes until the database knows `trials` of them, and keep the best.

    Every trial is stored at once, so that an interrupted search goes on where it stopped. In the end the best ones
    run against the untuned schedule for longer; the record names one only where its gain is above the noise.

    Raises:
        ScheduleError: sizes are not fixed. BuildError: the database cannot be written.
    """
    steps = tuning(scop, target, threads, trials, progress)
    try:
        asked = next(steps)
        while True:
            asked = steps.send(attempt(asked.trial.job, limit))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def tuning(scop: Scop, target: Target, threads: int, trials: int, progress: Progress | None = None) -> Tuning:
    """`tune_kernel` step by step. What it asks for depends on the times that it got alone, not on who ran it or when.

    Raises:
        ScheduleError: sizes are not fixed. BuildError: the database cannot be written.
    """
    key = database.key_of(scop, target, threads)
    record = database.find(key) or Record(scop.name, target.name, threads)
    found = candidates(scop, target, threads)
    tuner = _Tuner(scop, target, threads, found)

    def seen(candidate: Candidate, outcome: Outcome, count: int) -> None:
        nonlocal record
        record = record.with_trial(candidate.name, outcome)
        database.store(key, record)
        if progress is not None:
            progress(scop.name, count, min(trials, len(found)))

    if progress is not None:
        progress(scop.name, min(record.ran, trials), min(trials, len(found)))
    steps = searching(found, record.trials, trials, seen)
    try:
        candidate = next(steps)
        while True:
            candidate = steps.send((yield from tuner.measure(candidate, record.trials)))
    except StopIteration as end:
        outcomes: dict[str, Outcome] = end.value
    if record.gain is None or record.compared < len(outcomes):
        record = replace((yield from tuner.compared(record, outcomes)), compared=len(outcomes))
        database.store(key, record)
    return record


class _Tuner:
    """What the trials of one kernel have in common."""

    def __init__(self, scop: Scop, target: Target, threads: int, found: list[Candidate]) -> None:
        self.target, self.threads, self.found = target, threads, found
        self.text = json_io.dumps(scop)
        self.by_trace = {automatic(scop, target, threads).save(): Outcome(1.0, None, "the same as untuned", False)}
        self.traces: dict[str, str | Outcome] = {}

    def trial(self, trace: str, seconds: float, repeat: int = 0) -> Trial:
        return Trial(Job(self.text, trace, self.target, self.threads, seconds), repeat)

    def trace(self, candidate: Candidate) -> str | Outcome:
        """The steps of a candidate, or that it has none."""
        if candidate.name not in self.traces:
            try:
                self.traces[candidate.name] = candidate.make().save()
            except PolycError as error:
                self.traces[candidate.name] = Outcome(None, None, failure(error), False)
        return self.traces[candidate.name]

    def measure(self, candidate: Candidate, known: Mapping[str, Outcome]) -> Generator[Asked, Times, Outcome]:
        """One trial; no process is started for what is illegal or was measured under another name."""
        trace = self.trace(candidate)
        if isinstance(trace, Outcome):
            return trace
        if trace in self.by_trace:
            return replace(self.by_trace[trace], ran=False)
        times = yield Asked(self.trial(trace, TRIAL_SECONDS), lambda count: self.ahead(candidate, known, count))
        found = Outcome(None, None, times.error) if times.error else Outcome(times.ratio, min(times.candidate))
        self.by_trace[trace] = found
        return found

    def ahead(self, now: Candidate, known: Mapping[str, Outcome], count: int) -> list[Trial]:
        """Trials of candidates that may come after `now`."""
        traces = [self.trace(c) for c in likely(self.found, {**known, now.name: Outcome(None)}, count)]
        return [self.trial(t, TRIAL_SECONDS) for t in traces if isinstance(t, str) and t not in self.by_trace]

    def compared(self, record: Record, outcomes: dict[str, Outcome]) -> Generator[Asked, Times, Record]:
        """The first of the best that is faster than untuned for certain, else untuned.

        What an earlier version chose (its candidate is none any more) has to be slower than that, or it stays.
        """
        left = dict(outcomes)
        earlier = record.trace and record.chosen not in {c.name for c in self.found}
        old = (yield from self.certain(record.trace)) if earlier else None
        for _ in range(FINALISTS):
            best = best_of(self.found, left)
            if best is None:
                break
            del left[best.name]
            trace = self.trace(best)
            if isinstance(trace, Outcome):
                continue
            gain = yield from self.certain(trace)
            if gain is not None and (old is None or gain > old):
                return replace(record, chosen=best.name, trace=trace, gain=gain)
        if old is not None:
            return replace(record, gain=old)
        return replace(record, chosen="", trace="", gain=1.0)

    def certain(self, trace: str) -> Generator[Asked, Times, float | None]:
        """The least gain over untuned in several processes; None where one of them shows none.

        A process in which the noise is larger than the gain shows nothing: there is another one for it, for a while.
        """
        gains: list[float] = []
        noisy, repeat = 0, 0
        while len(gains) < CONFIRMED:
            ahead = [self.trial(trace, FINAL_SECONDS, repeat + k) for k in range(1, CONFIRMED - len(gains))]
            trial = self.trial(trace, FINAL_SECONDS, repeat)
            times = yield Asked(trial, lambda count, after=ahead: after[:count])  # type: ignore[misc]
            repeat += 1
            if times.error or times.ratio <= 1.0 + LEAST_GAIN:
                return None
            if times.ratio > 1.0 + 2.0 * times.noise:
                gains.append(times.ratio)
            elif (noisy := noisy + 1) > MOST_NOISY:
                return None
        return min(gains)
