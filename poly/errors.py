"""Every error that polyc shows a user derives from `PolycError`; its text is one clear message."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from polyc.poly.forms.conditions import Condition
    from polyc.poly.witnesses.violation import Violation
    from polyc.poly.witnesses.witness import Witness


class PolycError(Exception):
    """Root of all polyc errors: says what is wrong, where, and what to do.

    `code`: that of the kind of error; `polyc explain-error CODE` says more about it (docs/errors.md).
    """

    code: ClassVar[str] = "P001"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes, whatever their constructors take; what does not (isl's objects) stays."""
        return _raised, (type(self), self.args, {k: v for k, v in vars(self).items() if _travels(v)})


def _raised(kind: type[PolycError], args: tuple[Any, ...], state: dict[str, Any]) -> PolycError:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


def _travels(value: Any) -> bool:
    import pickle

    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


class ScopError(PolycError):
    """A Scop that breaks an invariant (found by `polyc.poly.verify`).

    `about`: the array or statement that breaks it, "(schedule)" for the tree, "" where it is none of these."""

    code = "P203"

    about: str = ""


class ScheduleError(PolycError):
    """A transformation that makes no structural sense (no such loop, loops not nested)."""

    code = "P201"


class Remedy(Protocol):
    """What would make a refused step legal (`polyc.scheduler.repair.Repair`)."""

    @property
    def text(self) -> str:
        """One clause for the message."""


class IllegalSchedule(ScheduleError):
    """A transformation that violates a dependence. Everything but the refusal itself is worked
    out when it is asked for, so that a search may be refused a thousand times.

    `str(error)` is one line, with the sizes and the repair unless `terse`; `detailed()` is for
    people. `witness`: a counterexample, whose `script()` runs. `legal_if`: the exact sizes at
    which the step would be legal. `repair`: the smallest steps that make it legal.
    """

    code = "P202"

    def __init__(
        self, message: str, violation: Violation | None = None,
        repair: Callable[[], Remedy | None] | None = None, terse: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.message, self.violation, self.terse = message, violation, terse
        self._find_repair = repair

    def because(self, other: IllegalSchedule) -> IllegalSchedule:
        """The same refusal with the violation that `other` found."""
        return IllegalSchedule(self.message, other.violation, self._find_repair, self.terse)

    @property
    def witness(self) -> Witness | None:
        """The smallest counterexample; None when the conflict is with the caller alone."""
        return None if self.violation is None else self.violation.witness

    @property
    def legal_if(self) -> Condition | None:
        """The sizes at which the step would be legal (possibly none of them); None if unknown."""
        return None if self.violation is None else self.violation.legal_if

    @cached_property
    def repair(self) -> Any:
        """The smallest `polyc.scheduler.repair.Repair` found, None when there is none."""
        return None if self._find_repair is None else self._find_repair()

    def __str__(self) -> str:
        if self.violation is None:
            return self.message
        text = f"{self.message}: {self.violation}"
        if self.terse:
            return text
        if self.legal_if:
            text += f"; it would be legal if {self.legal_if}"
        if self.violation.located:
            text += f" [{self.violation.located}]"
        return text + (f"; {self.repair.text}" if self.repair else "")

    def detailed(self) -> str:
        """Several lines: the pair with its source lines, the two values, the sizes, the repair."""
        if self.violation is None:
            return self.message
        lines = [self.message, *(f"  {line}" for line in self.violation.explained())]
        if self.legal_if is not None:
            lines.append(f"  legal if: {self.legal_if or 'never'}")
        lines.append(f"  repair:   {self.repair.text if self.repair else 'none found'}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return IllegalSchedule, (str(self),)  # isl objects do not travel between processes


class ArgumentError(PolycError):
    """Arguments of a kernel or model call do not fit (count, name, shape, dtype, size)."""

    code = "P002"


class BoundsError(PolycError, IndexError):
    """An access that was executed lies outside its array.

    `operator`, the source `line` (None if unknown), `array`, `axis` (from 0), `index` (negative ones are outside, too)
    and the `size` of the array along the axis.
    """

    code = "P005"

    def __init__(
        self, operator: str, line: int | None, array: str, axis: int, index: int, size: int, place: str = ""
    ) -> None:
        self.operator, self.line, self.array, self.axis = operator, line, array, axis
        self.index, self.size, self.place = index, size, place
        where = place or (f"line {line}" if line else "")
        super().__init__(
            f"{operator}: index {index} is out of bounds for axis {axis} of '{array}' with size {size}"
            + (f" ({where})" if where else "")
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundsError, (self.operator, self.line, self.array, self.axis, self.index, self.size, self.place)


class OptionError(ArgumentError):
    """An option that would have no effect with the others (on the command line: wrong usage)."""

    code = "P003"


class BuildError(PolycError):
    """Code generation, compilation or loading failed (missing compiler, full disk, bad object)."""

    code = "P301"


class ModelError(PolycError):
    """A model file cannot be read or compiled."""

    code = "P401"
