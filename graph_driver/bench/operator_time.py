"""The time of an operator with its schedule: what the cost model says, and what a run takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyc.emit import targets
from polyc.graph_driver.bench.calibration import this_machine
from polyc.graph_driver.bench.kernels import random_arguments, runner, shortest_seconds
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Prediction, predict
from polyc.scheduler.cost.work import work_of

if TYPE_CHECKING:
    from polyc.scheduler.schedule import Schedule


@dataclass(frozen=True)
class OperatorTime:
    """`predicted`: by the cost model with this machine's figures (None: sizes are free, or it is for another machine).

    `measured`: the shortest run on random arguments, in seconds (None: not measured). Both with so many `threads`.
    """

    predicted: Prediction | None
    measured: float | None
    threads: int

    def data(self) -> dict[str, Any]:
        """As JSON values."""
        predicted = None if self.predicted is None else self.predicted.data()
        return {"predicted": predicted, "measured": self.measured, "threads": self.threads}


def time_of(
    schedule: Schedule, machine: Target, threads: int, measure: bool = False, backend: str = "llvm",
    checks: bool | None = None,
) -> OperatorTime:  # fmt: skip
    """The time of a schedule on `machine`; with `measure` it is compiled and run here.

    Args:
        backend: of the code that is run, `llvm` or `c`.
        checks: of accesses that are not proven in it (None: unless `POLYC_CHECK=0`).

    Raises:
        ArgumentError: to be measured it needs sizes that are free.
        BuildError: the code cannot run here, or there is none.
        BoundsError: with random arguments an access is outside.
    """
    scop = schedule.original
    here = targets.obstacle(machine) is None
    work = work_of(scop, machine) if here else None
    predicted = None if work is None else predict(work, this_machine(machine), threads)
    if not measure:
        return OperatorTime(predicted, None, threads)
    if scop.params:
        raise ArgumentError(f"to run {scop.name} it needs values for {', '.join(scop.params)} (--dim NAME=V)")
    targets.check_runs_here(machine)
    kernel = compile_operator(scop, machine, schedule, threads, backend=backend, checks=checks)
    return OperatorTime(predicted, shortest_seconds(runner(kernel, random_arguments(scop))), threads)
