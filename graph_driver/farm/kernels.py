"""Kernels of a model compiled on a farm, by any worker with this polyc: what it makes depends on the job alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence

from polyc.graph_driver.farm import onworker
from polyc.graph_driver.farm.farm import Answer, Farm, Work
from polyc.graph_driver.worker.jobs import Job, encode, kept
from polyc.graph_driver.worker.pool import Progress, Result, result_of
from polyc.poly.budgets import time_limit_seconds
from polyc.poly.errors import BuildError

WAIT = 1.0
"""Seconds between two looks for answers."""


class FarmCompilers:
    """`polyc.graph_driver.worker.kernels.Compilers` on a farm."""

    def __init__(self, farm: Farm) -> None:
        self._farm, self._needs = farm, farm.need(None)
        self._limit = time_limit_seconds()
        self._asked: dict[str, Job] = {}
        self._results: dict[str, Result] = {}
        self.compiled = 0

    def start(self) -> None:
        """The workers are there."""

    def add(self, jobs: Iterable[Job]) -> None:
        """Give them to workers, the largest first. Raises `BuildError`: the scheduler is gone."""
        for job in sorted(jobs, key=lambda j: -len(j.text)):
            if job.symbol not in self._asked:
                self._asked[job.symbol] = job
                self._farm.give(Work(onworker.kernel, encode(job).decode(), self._needs, self._limit, job.symbol))

    def results(self, jobs: Sequence[Job], progress: Progress | None = None) -> dict[str, Result]:
        """Wait for jobs that were added; machine code goes into this machine's cache, too.

        Raises:
            BuildError: the scheduler or all workers are gone.
        """
        wanted = {job.symbol for job in jobs}
        while not wanted <= self._results.keys():
            if answer := self._farm.take(WAIT):
                self._keep(answer)
                if progress is not None:
                    progress(len(wanted & self._results.keys()), len(wanted))
        return {symbol: self._results[symbol] for symbol in sorted(wanted)}

    def _keep(self, answer: Answer) -> None:
        symbol = answer.work.label
        if answer.error:
            self._results[symbol] = answer.error
            return
        try:
            said = json.loads(answer.text)
            result = result_of(said["head"], base64.b64decode(said["image"]))
        except (ValueError, KeyError, TypeError):
            raise BuildError(f"the worker {answer.worker} answered something that is no kernel") from None
        if not isinstance(result, str):
            self.compiled += 1
            kept(self._asked[symbol], result)
        self._results[symbol] = result
