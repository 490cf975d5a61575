"""What every `Schedule` has: the Scop, the tree, the trace, and the one place where a step is checked.

The transformations are in `scheduler/steps/`, one class a subject; `scheduler/schedule.py` joins them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Literal, Self

from polyc.poly.errors import IllegalSchedule
from polyc.poly.json_io import dump_tree, load_tree
from polyc.poly.records import dataclass, replace
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, loop_names, of_scop
from polyc.scheduler.decision import Decision
from polyc.scheduler.step import Step
from polyc.scheduler.texts import addressing
from polyc.scheduler.transformations import guarding
from polyc.scheduler.transformations.storage import check_buffers, check_shared
from polyc.scheduler.transformations.tree_edit import check_dynamic, check_numbers, locate

if TYPE_CHECKING:
    from polyc.scheduler.repair import Repair

Changes = Literal["all", "mark", "storage", "none"]


@dataclass(frozen=True)
class Core:
    """The data of a `Schedule` (see there) and the check of its steps.

    `scop` is what the tree schedules; `inline` and `rfactor` replace it. The trace always
    replays from `original`.
    """

    scop: Scop
    tree: Node
    trace: tuple[Step, ...] = ()
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
    terse: bool = field(default=False, compare=False, repr=False)
    _deferred: bool = field(default=False, compare=False, repr=False)
    _original: Scop | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", of_scop(self.tree, self.scop))

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, f.name) for f in fields(self)]
        return _unpickled, (type(self), dump_tree(self.tree), *(v for v in values if v is not self.tree))

    def __copy__(self) -> Self:
        return self  # nothing in it changes

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    @property
    def original(self) -> Scop:
        """The Scop that the trace starts from (`scop` unless a step has replaced it)."""
        return self.scop if self._original is None else self._original

    @property
    def loops(self) -> tuple[str, ...]:
        """Names of all loops, outermost and textually first first."""
        return loop_names(self.tree)

    def __repr__(self) -> str:
        shown = self.loops if len(self.loops) <= 8 else (*self.loops[:7], "...")
        steps = f"{len(self.trace)} step{'' if len(self.trace) == 1 else 's'}"
        return f"<{type(self).__name__} of {self.scop.name}: {steps}, loops {', '.join(shown) or 'none'}>"

    def _repr_html_(self) -> str:
        from polyc.poly.hooks import resolve

        return str(resolve("html")(self))

    def __str__(self) -> str:
        from polyc.poly.text import print_tree

        return print_tree(self.tree, self.scop)

    def _one(self, loop: str) -> str:
        """The single loop that a name or pattern stands for."""
        return addressing.one(self.scop, self.tree, loop)

    def _several(self, loops: Sequence[str] | str) -> list[str]:
        """All loops that names and patterns stand for."""
        return addressing.several(self.scop, self.tree, loops)

    def save(self) -> str:
        """The trace as JSON lines: one step a line."""
        return "".join(json.dumps({"do": s.name, **s.args}) + "\n" for s in self.trace)

    @property
    def notes(self) -> tuple[str, ...]:
        """The decisions as text, a line each."""
        return tuple(str(d) for d in self.decisions)

    def noted(self, *notes: str | Decision) -> Self:
        """The same schedule with decisions (or just remarks) added."""
        new = (n if isinstance(n, Decision) else Decision("remark", "", n) for n in notes)
        return replace(self, decisions=(*self.decisions, *new))

    def batch(self, *steps: tuple[str, dict[str, Any]]) -> Self:
        """Several steps `(name, arguments)` with one check of the result (the steps between may
        be illegal). Recorded one by one. Refused when the result is illegal."""
        return self._batch("all", *steps)

    def in_one_check(self, program: Callable[[Self], Self], called: str = "") -> Self:
        """What `program` makes of this schedule, with one check of the result (the steps between may be illegal).

        `called`: what a refusal calls it, default its steps. Recorded step by step. Refused when the result is illegal.
        """
        return self._checked_once("all", program, called)

    def _batch(self, changes: Changes, *steps: tuple[str, dict[str, Any]]) -> Self:
        def program(schedule: Self) -> Self:
            for name, args in steps:
                schedule = getattr(schedule, name)(**args)
            return schedule

        return self._checked_once(changes, program)

    def _checked_once(self, changes: Changes, program: Callable[[Self], Self], called: str = "") -> Self:
        schedule = replace(program(replace(self, _deferred=True)), _deferred=self._deferred)
        if not self._deferred:
            schedule._verify(
                lambda: called or " ".join(str(s) for s in schedule.trace[len(self.trace) :]), changes, None
            )
        return schedule

    def _step(self, name: str, args: dict[str, Any], tree: Node, changes: Changes = "all",
              loop: str | None = None, scop: Scop | None = None, guarded: bool = False) -> Self:  # fmt: skip
        """Accept the new tree if it is legal, and record the step. `changes` says what the step
        can have broken: everything, the promise of the mark on `loop`, the promotions, nothing.
        `scop`, if the step replaces it: an equivalent Scop, proved by the caller. `guarded`: the
        new tree where it is legal and the old one for all other sizes."""
        step = Step(name, {**args, "guarded": True} if guarded else args)
        if guarded and scop is None:
            tree, changes = guarding.guarded(self.scop, self.tree, tree), "all"
        trace = (*self.trace, step)
        if scop is None:
            new = replace(self, tree=tree, trace=trace)
        else:
            new = replace(self, tree=tree, trace=trace, scop=scop, _original=self.original)
        if not self._deferred:
            new._verify(lambda: str(step), changes, loop, lambda: _repair(self, step))
        return new

    def _verify(self, what: Callable[[], str], changes: Changes, loop: str | None,
                remedy: Callable[[], Repair | None] | None = None) -> None:  # fmt: skip
        """Raise `IllegalSchedule` or `ScheduleError` unless the tree is legal."""
        from polyc.poly import legality

        violation = None
        if changes != "none":
            check_buffers(self.scop, self.tree)
            check_shared(self.scop, self.tree)
            check_numbers(self.tree)
        if changes == "mark" and loop is not None:
            vector = locate(self.tree, loop).member.kind == "vector"
            violation = legality.check_parallel(self.scop, self.tree, loop, vector)
        elif changes == "storage":
            violation = legality.check_promotions(self.scop, self.tree)
        elif changes == "all":
            check_dynamic(self.scop, self.tree)
            violation = legality.first_violation(self.scop, self.tree)
        if violation is not None:
            raise IllegalSchedule(f"{what()} is illegal", violation, remedy, self.terse)


def _repair(schedule: Any, step: Step) -> Repair | None:
    """The smallest repair of a refused step."""
    from polyc.scheduler import repair

    return repair.find(schedule, step)


def as_list(names: Sequence[str] | str) -> list[str]:
    """One name or several as a list."""
    return [names] if isinstance(names, str) else list(names)


def _unpickled(kind: type[Core], tree: str, scop: Scop, *rest: Any) -> Core:
    return kind(scop, load_tree(tree), *rest)
