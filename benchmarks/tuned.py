"""`python -m benchmarks.tuned [--family F]... [--trials N] [--results FOLDER]`: what tuning brings, one thread.

The kernels of each operator are tuned (`docs/tuning.md`) with a database of their own; then the untuned and the tuned
model run in turn. `--results` writes DATE-cpu-tuned.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.cases import Case, all_cases
from benchmarks.report import geometric_mean, machine_line
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.bench.timing import free_all_cores, interleave, pin_to_one_core
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import formed, optimise
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.tuning.kernels import worth_tuning
from polyc.graph_driver.tuning.tune import tune_kernel
from polyc.graph_driver.worker.database import Record

FAMILIES = ("gemm", "conv", "memory")
LIMIT = 30.0  # seconds a trial may take


@dataclass(frozen=True)
class Row:
    """Least milliseconds without and with tuned schedules, and what was chosen for each kernel."""

    case: str
    untuned: float
    tuned: float
    chosen: tuple[str, ...]

    @property
    def gain(self) -> float:
        return self.untuned / self.tuned

    def __str__(self) -> str:
        return f"| {self.case} | {self.untuned:.3f} | {self.tuned:.3f} | {self.gain:.2f} | {', '.join(self.chosen)} |"


def tune(case: Case, trials: int) -> list[Record]:
    """The kernels that matter, tuned."""
    options = CompileOptions(threads=1)
    platform = platform_of("cpu", 1)
    graph = import_with(case.model, platform, options)
    optimise(graph, platform, options)
    kernels, _ = worth_tuning(formed(graph, platform, options)[1], platform)
    return [tune_kernel(k.scop, platform.machine, 1, trials, LIMIT) for k in kernels]


def measured(case: Case, trials: int, rounds: int) -> Row:
    """Tuned, then both models in turn, pinned to one core."""
    records = tune(case, trials)
    untuned, tuned = (compile_model(case.model, threads=1, tuned=t) for t in (False, True))
    pin_to_one_core()
    try:
        times = interleave({"untuned": lambda: untuned(case.inputs), "tuned": lambda: tuned(case.inputs)}, rounds)
    finally:
        free_all_cores()
    chosen = tuple(r.chosen or "untuned" for r in records)
    return Row(case.name, times["untuned"].minimum, times["tuned"].minimum, chosen)


def page(rows: list[Row], trials: int, rounds: int) -> str:
    """The rows as Markdown."""
    return "\n".join([
        "# What tuning brings, one thread", "", machine_line(), "",
        f"`python -m benchmarks.tuned --trials {trials}`: every kernel was searched for {trials} trials; milliseconds "
        f"are minima of {rounds} rounds in turn. All other pages are without tuning.", "",
        "| case | untuned | tuned | untuned / tuned | schedules chosen |", "| --- | ---: | ---: | ---: | --- |",
        *map(str, rows), "", f"Geometric mean: {geometric_mean(r.gain for r in rows):.2f}.", "",
    ])  # fmt: skip


def rows(families: list[str], trials: int, rounds: int) -> Iterator[Row]:
    cases = [c for c in all_cases() if c.family in families]
    for case in track(cases, "tuning", console=Console(stderr=True)):
        yield measured(case, trials, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuned", description=__doc__)
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these (default: all)")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--results", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["POLYC_CACHE"] = cache  # a database of its own
        text = page(list(rows(options.family or list(FAMILIES), options.trials, options.rounds)), options.trials,
                    options.rounds)  # fmt: skip
    print(text)
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / f"{datetime.date.today()}-cpu-tuned.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
