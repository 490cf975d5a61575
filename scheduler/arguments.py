"""Checks of the plain arguments of transformations."""

from __future__ import annotations

from polyc.poly.errors import ScheduleError

LARGEST = 2**31 - 1
"""Of factors and sizes of blocks: products of two with subscripts still are 64-bit numbers."""


def integer(value: int, what: str) -> None:
    """Raise `ScheduleError` unless `value` is an integer (a bool is none) and not too large."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(f"the {what} must be an integer, not {value!r}")
    if abs(value) > LARGEST:
        raise ScheduleError(f"the {what} must be at most {LARGEST}, not {value}")


def positive(value: int, what: str) -> None:
    """Raise `ScheduleError` unless `value` is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ScheduleError(f"the {what} must be a positive integer, not {value!r}")
    if value > LARGEST:
        raise ScheduleError(f"the {what} must be at most {LARGEST}, not {value}")
