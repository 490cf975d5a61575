"""Schedules as text: programs of steps, YAML files, and the difference of two schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.scop import Scop
from polyc.scheduler.core import Core

if TYPE_CHECKING:
    from polyc.scheduler.texts.diff import Difference


class Files(Core):
    """Part of `Schedule`."""

    def program(self, operator: str | None = None) -> str:
        """The steps as Python: the lines, run where `operator` is the operator, make this schedule as `s`.

        `operator` is what to call it in the text (None: its own name). The constants and sizes that the schedule was
        made for are written beside it, `jacobi.scop(tsteps=5).schedule()`, unless `operator` says which:
        `"jacobi(tsteps=5)"`, or none: `"jacobi()"`.
        """
        from polyc.scheduler.texts.program_text import operator_text, program_text

        return program_text(type(self), self.trace, operator_text(self.original, operator))

    def to_yaml(self) -> str:
        """The schedule as YAML for people to edit: loops by name, values as expressions.

        `Schedule.from_yaml(scop, text)` reads it back.
        """
        from polyc.scheduler.texts.yaml_form import write

        return write(self.scop, self.tree, self.trace)

    @classmethod
    def from_yaml(cls, scop: Scop, text: str) -> Self:
        """The schedule of `scop` that a YAML text describes; it is checked as any other step.

        Arguments: `scop`, the same algorithm (any sizes); `text`, from `to_yaml`, perhaps edited.
        Raises: `ScheduleError` naming line and key; `IllegalSchedule` (with `.witness`) for a tree
        that breaks a dependence.
        """
        from polyc.scheduler.schedule import STEPS
        from polyc.scheduler.texts.yaml_reading import Document

        document = Document(text)
        schedule = cls(scop, scop.tree)
        for line, name, arguments in document.first():
            if name not in STEPS:
                raise ScheduleError(f"line {line}: no step '{name}'")
            try:
                schedule = getattr(schedule, name)(**arguments)
            except IllegalSchedule:
                raise
            except (AttributeError, TypeError):
                raise ScheduleError(f"line {line}: no step '{name}' with these arguments") from None
            except ScheduleError as error:
                raise ScheduleError(f"line {line}: {error}") from None
        done: Self = schedule.set_order(document.tree(schedule.scop))  # type: ignore[attr-defined]
        return done

    def diff(self, other: Core) -> Difference:
        """What changes from this schedule to `other`, of the same algorithm, in words and as data.

        `print(s.diff(t))`: one line a change, such as `tile of i 32 -> 64`; iterating gives `Change`s.
        """
        from polyc.scheduler.texts.diff import compare

        return compare(self.scop, self.tree, other.scop, other.tree)
