"""The immutable `Schedule`: a Scop, a tree, and the trace of the steps that led there.

Every transformation asks `polyc.poly.legality` before it returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from polyc.poly.budgets import STEP, budget
from polyc.poly.errors import ScheduleError
from polyc.poly.scop import LoopMark, Scop
from polyc.scheduler.step import Step
from polyc.scheduler.steps.blocks import Blocks
from polyc.scheduler.steps.files import Files
from polyc.scheduler.steps.joining import Joining
from polyc.scheduler.steps.marks import Marks
from polyc.scheduler.steps.order import Order
from polyc.scheduler.steps.program import Program
from polyc.scheduler.steps.questions import Questions
from polyc.scheduler.steps.storage import Storage

__all__ = ["STEPS", "Schedule", "Step"]


class Schedule(Blocks, Order, Joining, Marks, Storage, Program, Questions, Files):
    """When and how the statements of `scop` run.

    `tree` prints as a picture; `trace` replays on the same Scop; `notes` are decisions of
    the strategy that built the schedule. A refusal (`IllegalSchedule`) has a witness, the exact
    sizes at which the step would be legal, and the smallest repair found; its one-line text names
    the last two unless `terse` (for searches that are refused a thousand times). Every step that
    changes the order takes `guarded=True`: the new order for the sizes at which it is legal, the
    old one, its loops named `else.<loop>`, for all others.
    """

    @staticmethod
    def start(scop: Scop) -> Schedule:
        """The program order."""
        return Schedule(scop, scop.tree)

    @staticmethod
    def of(scop: Scop, gpu: bool = False) -> Schedule:
        """The program order, its loops running as the program itself says (`parallel(n)`, `vectorize(n)`, ...).

        A `gpu` has no such parallel and vector loops; there the strategies choose, and only `bind` and `unroll` count.

        Raises:
            IllegalSchedule: a loop that the program calls parallel carries a dependence, and the like.
        """
        schedule = Schedule.start(scop)
        for mark in scop.marks:
            if gpu and mark.kind in ("serial", "parallel", "vectorize"):
                continue
            try:
                schedule = _marked(schedule, mark)
            except ScheduleError as error:
                error.add_note(
                    f"the program itself asks for it: its loop '{mark.loop}' is over {_call(mark.kind)}(...)"
                )
                raise
        return schedule

    @staticmethod
    def replay(scop: Scop, text: str) -> Schedule:
        """Apply a saved trace to the program order of `scop`.

        Raises:
            ScheduleError: a line is not a step; IllegalSchedule: a step is illegal here.
        """
        schedule = Schedule.start(scop)
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            name, record = read_step(line, number)
            try:
                schedule = getattr(schedule, name)(**record)
            except TypeError:
                raise ScheduleError(f"line {number} of the trace: wrong arguments for {name}: {line[:80]}") from None
        return schedule


def _marked(schedule: Schedule, mark: LoopMark) -> Schedule:
    if mark.kind == "serial":
        return schedule
    if mark.kind in ("parallel", "vectorize", "unroll"):
        factor = {} if mark.kind == "parallel" else {"lanes" if mark.kind == "vectorize" else "factor": mark.factor}
        step: Schedule = getattr(schedule, mark.kind)(mark.loop, **factor)
        return step
    return schedule.bind(mark.loop, mark.kind)  # type: ignore[arg-type]


def _call(kind: str) -> str:
    return kind if "." not in kind else "bind"


def read_step(line: str, number: int) -> tuple[str, dict[str, Any]]:
    """A line of a trace as the name of a transformation and its arguments. Raises `ScheduleError`."""
    try:
        record = json.loads(line)
        name = record.pop("do")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ScheduleError(f"line {number} of the trace is not a step: {line[:80]}") from None
    if not isinstance(name, str) or name not in STEPS:
        raise ScheduleError(f"line {number} of the trace: no transformation '{name}'")
    return name, record


STEPS = frozenset(
    "split strip_mine unsplit tile interchange permute reverse skew shift reorder_statements fuse distribute "
    "unroll_and_jam index_split peel version parallel vectorize unroll bind serial promote contract inline outline "
    "split_sum expand coalesce split_statement unite_statements gather read_first rfactor eliminate normalise in_words "
    "relayout recompute set_order".split()
)


def _bounded(name: str, step: Callable[..., Schedule]) -> Callable[..., Schedule]:
    """The step within its budget."""
    advice = "use smaller factors or fewer parts, or fix sizes with scop(N=...) before the schedule"

    @wraps(step)
    def run(self: Schedule, *args: Any, **kwargs: Any) -> Schedule:
        with budget(f"the schedule step '{name}'", STEP, advice):
            return step(self, *args, **kwargs)

    return run


for _name in STEPS:
    setattr(Schedule, _name, _bounded(_name, getattr(Schedule, _name)))
