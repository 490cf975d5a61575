"""Tuning one kernel: trials from the model's favourites on, a last comparison, and the record of all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyc.graph_driver.tuning.trial import Job, Times, run_apart
from polyc.graph_driver.worker import database
from polyc.graph_driver.worker.database import Record
from polyc.poly import json_io
from polyc.poly.errors import PolycError
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.tuning.search import Outcome, best_of, search
from polyc.scheduler.tuning.space import Candidate, candidates, failure

TRIAL_SECONDS = 0.3  # of runs in a trial
FINAL_SECONDS = 2.0
TIME_LIMIT = 60.0  # seconds of a trial, compiling included
LEAST_GAIN = 0.02  # a schedule is taken when it is faster by this share and by twice the noise
FINALISTS = 3
CONFIRMED = 3  # processes: where arrays lie in memory is part of a time, and another place in each of them

Try = Callable[[Job, float], Times]
Progress = Callable[[str, int, int], None]


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
    key = database.key_of(scop, target, threads)
    record = database.find(key) or Record(scop.name, target.name, threads)
    found = candidates(scop, target, threads)
    tuner = _Tuner(scop, target, threads, limit, attempt)

    def seen(candidate: Candidate, outcome: Outcome, count: int) -> None:
        nonlocal record
        record = record.with_trial(candidate.name, outcome)
        database.store(key, record)
        if progress is not None:
            progress(scop.name, count, min(trials, len(found)))

    if progress is not None:
        progress(scop.name, min(record.ran, trials), min(trials, len(found)))
    outcomes = search(found, record.trials, tuner.measure, trials, seen)
    if record.gain is None or record.compared < len(outcomes):
        record = replace(tuner.compared(record, found, outcomes), compared=len(outcomes))
        database.store(key, record)
    return record


class _Tuner:
    """What the trials of one kernel have in common."""

    def __init__(self, scop: Scop, target: Target, threads: int, limit: float, attempt: Try) -> None:
        self.scop, self.target, self.threads = scop, target, threads
        self.limit, self.attempt = limit, attempt
        self.text = json_io.dumps(scop)
        self.by_trace = {automatic(scop, target, threads).save(): Outcome(1.0, None, "the same as untuned", False)}

    def job(self, trace: str, seconds: float) -> Job:
        return Job(self.text, trace, self.target, self.threads, seconds)

    def measure(self, candidate: Candidate) -> Outcome:
        """One trial; no process is started for what is illegal or was measured under another name."""
        try:
            trace = candidate.make().save()
        except PolycError as error:
            return Outcome(None, None, failure(error), False)
        if trace in self.by_trace:
            return replace(self.by_trace[trace], ran=False)
        times = self.attempt(self.job(trace, TRIAL_SECONDS), self.limit)
        found = Outcome(None, None, times.error) if times.error else Outcome(times.ratio, min(times.candidate))
        self.by_trace[trace] = found
        return found

    def compared(self, record: Record, found: list[Candidate], outcomes: dict[str, Outcome]) -> Record:
        """The first of the best that is faster than untuned for certain, else untuned.

        What an earlier version chose (its candidate is none any more) has to be slower than that, or it stays.
        """
        left = dict(outcomes)
        earlier = record.trace and record.chosen not in {c.name for c in found}
        old = self.certain(record.trace) if earlier else None
        for _ in range(FINALISTS):
            best = best_of(found, left)
            if best is None:
                break
            del left[best.name]
            trace = best.make().save()
            gain = self.certain(trace)
            if gain is not None and (old is None or gain > old):
                return replace(record, chosen=best.name, trace=trace, gain=gain)
        if old is not None:
            return replace(record, gain=old)
        return replace(record, chosen="", trace="", gain=1.0)

    def certain(self, trace: str) -> float | None:
        """The least gain over untuned in several processes; None where one of them shows none."""
        gains: list[float] = []
        while len(gains) < CONFIRMED:
            times = self.attempt(self.job(trace, FINAL_SECONDS), self.limit)
            if times.error or times.ratio <= 1.0 + max(LEAST_GAIN, 2.0 * times.noise):
                return None
            gains.append(times.ratio)
        return min(gains)
