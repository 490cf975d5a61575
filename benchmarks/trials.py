"""`python -m benchmarks.trials [--trials N] [--only OPERATOR]... [--results FOLDER]`: what tuning brings operators.

Each operator is tuned from an empty database by `polyc tune`'s search (N trials: 200); a second search must find all of
them in the database. Then the chosen schedule runs against the untuned one in turns, in a process of its own that the
search has not seen. One thread.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import Progress

from benchmarks.dated_page import add_outputs, publish
from benchmarks.report import geometric_mean, machine_line
from polyc.emit import targets
from polyc.frontend_dsl.library import convolution, matrix, movement, normalization, pooling, reduction
from polyc.graph_driver.tuning.trial import Job, run_apart
from polyc.graph_driver.tuning.tune import tune_kernel
from polyc.poly import json_io
from polyc.poly.dtypes import f32
from polyc.poly.scop import Scop

ONE, NONE = (1, 1), (0, 0)
SECONDS = 3.0  # of the last comparison
LIMIT = 60.0


def operators() -> dict[str, Scop]:
    """Ten operators at sizes of their own; what they read and write fits into L2 or does not."""
    made = {
        "matmul": matrix.make_matmul(f32, 96, 120, 88),
        "gemm": matrix.make_gemm(f32, 70, 90, 60, (True, True), 1.0, 0.5, (60,)),
        "batched": matrix.make_batched_matmul(f32, (2, 1), (3,), (2, 3), 33, 50, 41),
        "convolution": convolution.make_conv2d(f32, 1, (16, 24), (28, 28), (3, 3), ONE, ONE, ONE, ONE, True),
        "depthwise": convolution.make_depthwise(f32, 1, 32, (28, 28), (3, 3), ONE, ONE, ONE, ONE, True),
        "softmax": normalization.make_softmax(f32, 64, 200, 1),
        "layer_norm": normalization.make_layer_norm(f32, 64, 300, 1e-5, True),
        "max_pool": pooling.make_max_pool(f32, 32, (56, 56), (28, 28), (3, 3), (2, 2), ONE, ONE),
        "transpose": movement.make_transpose(f32, (40, 50, 60), (2, 0, 1)),
        "mean": reduction.make_reduce("mean", f32, (40, 50, 60), (1,), True),
    }
    return {name: operator.scop() for name, operator in made.items()}


@dataclass(frozen=True)
class Row:
    """One operator: trials that ran a process, those that are known by name, the best ratio after each trial in turn,
    trials of a second search, the chosen schedule ("": the untuned one) and its gain in the last comparison (1 where
    it is the untuned one)."""

    operator: str
    ran: int
    known: int
    best: tuple[float, ...]
    again: int
    chosen: str
    gain: float
    seconds: float

    def __str__(self) -> str:
        best, kept = max(self.best, default=1.0), self.chosen or "untuned"
        ends = f"{best:.2f} | {kept} | {self.gain:.2f} | {self.again} | {self.seconds:.0f}"
        return f"| {self.operator} | {self.known} | {self.ran} | {ends} |"


def row(name: str, scop: Scop, trials: int, bar: Progress) -> Row:
    """Tune one operator, search again, and compare."""
    host, start, best = targets.host(), time.perf_counter(), 1.0
    task = bar.add_task(name, total=trials)
    record = tune_kernel(scop, host, 1, trials, progress=lambda _, done, of: bar.update(task, completed=done, total=of))
    seconds, steps, again = time.perf_counter() - start, [], 0
    for outcome in record.trials.values():
        best = max(best, outcome.speed)
        steps.append(best)

    def counted(job: Job, limit: float) -> object:
        nonlocal again
        again += 1
        return run_apart(job, limit)

    tune_kernel(scop, host, 1, trials, attempt=counted)  # type: ignore[arg-type]
    gain = 1.0
    if record.trace:
        times = run_apart(Job(json_io.dumps(scop), record.trace, host, 1, SECONDS), LIMIT)
        gain = times.ratio
    return Row(name, sum(o.ran for o in record.trials.values()), len(record.trials), tuple(steps), again, record.chosen,
               gain, seconds)  # fmt: skip


def rows(trials: int, only: list[str]) -> Iterator[Row]:
    """Each operator from an empty database."""
    chosen = {n: s for n, s in operators().items() if not only or n in only}
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as bar:
        os.environ["POLYC_CACHE"] = folder
        for name, scop in chosen.items():
            yield row(name, scop, trials, bar)


def page(found: list[Row]) -> str:
    """The rows as Markdown."""
    return "\n".join([
        "# Ten operators, tuned", "", machine_line(), "",
        "`python -m benchmarks.trials`: `polyc tune`'s search from an empty database, one thread. *Best* is the "
        "largest ratio of a trial, *gain* that of the schedule that was kept against untuned in a new process, in "
        "turns; *again*: trials that a second search ran.", "",
        "| operator | candidates tried | in processes | best | kept | gain | again | s |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
        *map(str, found), "",
        f"Geometric mean {geometric_mean(r.gain for r in found):.2f}, least {min(r.gain for r in found):.2f}.", "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trials", description=__doc__)
    parser.add_argument("--trials", type=int, default=200, help="of each operator (200)")
    parser.add_argument("--only", action="append", default=[], metavar="OPERATOR", help="these (default: all ten)")
    add_outputs(parser)
    options = parser.parse_args()
    found = list(rows(options.trials, options.only))
    publish(options, "trials", page(found), [asdict(r) for r in found])


if __name__ == "__main__":
    main()
