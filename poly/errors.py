"""Every error that polyc shows a user derives from `PolycError`; its text is one clear message."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poly.witness import Witness


class PolycError(Exception):
    """Root of all polyc errors: says what is wrong, where, and what to do."""


class ScopError(PolycError):
    """A Scop that breaks an invariant (found by `poly.verify`)."""


class ScheduleError(PolycError):
    """A transformation that makes no structural sense (no such loop, loops not nested)."""


class IllegalSchedule(ScheduleError):
    """A transformation that violates a dependence; `.witness` holds a counterexample."""

    def __init__(self, message: str, witness: Witness | None = None) -> None:
        super().__init__(message)
        self.witness = witness


class ArgumentError(PolycError):
    """Arguments of a kernel or model call do not fit (count, name, shape, dtype, size)."""


class BuildError(PolycError):
    """Code generation, compilation or loading failed (missing compiler, full disk, bad object)."""


class ModelError(PolycError):
    """A model file cannot be read or compiled."""
