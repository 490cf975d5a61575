"""Checks of the plain arguments of transformations."""

from __future__ import annotations

from poly.errors import ScheduleError


def integer(value: int, what: str) -> None:
    """Raise `ScheduleError` unless `value` is an integer (a bool is none)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(f"the {what} must be an integer, not {value!r}")


def positive(value: int, what: str) -> None:
    """Raise `ScheduleError` unless `value` is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ScheduleError(f"the {what} must be a positive integer, not {value!r}")
