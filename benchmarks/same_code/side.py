"""One version of polyc as a process: it compiles a model, runs it, and says how long its schedules take.

A request is a line of JSON on stdin, its answer one on stdout. The file runs under versions of any age (`PYTHONPATH`
is the version's checkout), so it knows only what they have in common.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

import polyc
from polyc.scheduler.strategies import auto

Answer = dict[str, Any]
IN_PROCESS = ("polyc.graph_driver.worker.kernels", "polyc.graph_driver.kernels")
"""Where the number of kernels is that a process compiles itself, newest version first."""


class Side:
    """What the requests call: each method is one."""

    def __init__(self) -> None:
        self.run: Callable[[], object] = lambda: None
        self.seconds: list[float] = []
        self.automatic = auto.automatic
        auto.automatic = self._timed
        _compile_all_in_this_process()

    def where(self) -> Answer:
        """The file of the package that runs."""
        return {"file": polyc.__file__}

    def compile(self, model: str, feeds: str, bind: Mapping[str, Any], cache: str, checks: bool = True) -> Answer:
        """Compile a file for one thread and for the shapes of the inputs in the file `feeds`, with an empty cache.

        `checks`: of accesses that are not proven, where the version has them.

        `seconds` of processors in all, `schedule` for each kernel's automatic schedule.
        """
        os.environ |= {"POLYC_CACHE": cache, "POLYC_CHECK": str(int(checks))}
        inputs = dict(np.load(feeds))
        fixed = {n: np.asarray(v) for n, v in bind.items()}
        self.seconds = []
        start = time.process_time()
        compiled = polyc.compile_model(
            model, threads=1, shapes={n: x.shape for n, x in inputs.items()}, bind=fixed
        )  # fmt: skip
        seconds = time.process_time() - start
        report = compiled.report()
        self.run = lambda: compiled(inputs)
        return {"seconds": seconds, "schedule": self.seconds, "launches": report.kernels, "host": len(report.host),
                "arena": report.peak}  # fmt: skip

    def call(self, times: int) -> Answer:
        """Run the model that was compiled last; seconds of processors a run."""
        start = time.process_time()
        for _ in range(times):
            self.run()
        return {"seconds": (time.process_time() - start) / times}

    def _timed(self, *given: Any, **options: Any) -> Any:
        start = time.process_time()
        made = self.automatic(*given, **options)
        self.seconds.append(time.process_time() - start)
        return made


def _compile_all_in_this_process() -> None:
    for name in IN_PROCESS:
        try:
            import_module(name).IN_PROCESS = sys.maxsize
        except ModuleNotFoundError:
            continue
        return
    raise RuntimeError(f"this version of polyc has none of {', '.join(IN_PROCESS)}")


def main() -> None:
    """Serve requests until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    side = Side()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(side, request.pop("do"))(**request)
        except Exception as error:  # it is the version's, and the other one's answer may be another
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
