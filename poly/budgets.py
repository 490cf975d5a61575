"""What a stage of compilation may use: isl operations, counted, and as a last resort time.

Operations are the same on every machine, so what is decided by them is, too; the clock only ever ends in an error.
Both can be raised: `POLYC_BUDGET` multiplies all numbers of operations, `POLYC_TIME_LIMIT` is in seconds.
`docs/budgets.md` lists the stages.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

from polyc.poly.errors import BuildError
from polyc.poly.interrupts import interruptible
from polyc.poly.quota import QuotaExceeded, quota

DERIVATIVE = 200_000_000
"""isl operations to derive a Scop: some tens of seconds."""
STEP = 4_000_000
"""isl operations for one step of a user's schedule."""
FRONT_END = 20_000_000
"""isl operations to make a Scop of a program."""
AUTOMATIC = 20_000_000
"""isl operations for one Scop on a CPU before it falls back to program order (seconds, by how long the numbers get)."""
AUTOMATIC_GPU = 40_000_000
"""The same for a GPU."""
ATTEMPT = 4_000_000
"""isl operations for one step of an automatic schedule for a GPU: half a second."""
WITNESS = 200_000
"""isl operations for the instances that say why a loop stays serial; without them the reason names the loop alone."""
TIDYING = 1_000_000
"""isl operations for one question of who sees which value of an adjoint; without an answer what it has stays."""
TIDYING_ALL = 1_200_000
"""isl operations for all such questions of one adjoint (the library takes 0.6 million at most)."""
WASTE = 200_000
"""isl operations to find what a Scop computes in vain or twice; without an answer everything runs."""
TIME_LIMIT = 600.0
"""Seconds for one operator or one kernel of a model."""


class OverBudget(BuildError):
    """A stage needed more operations than it may use; the text says which stage, how many, and what to do."""

    code = "P302"


class TimeOver(BuildError):
    """Compiling one thing took longer than it may; the text says where it was, and what to do."""

    code = "P303"


def scaled(operations: int) -> int:
    """A budget after `POLYC_BUDGET`. Raises `BuildError` when that is no positive number."""
    return max(1, int(operations * _number("POLYC_BUDGET", 1.0)))


@contextmanager
def budget(stage: str, operations: int, advice: str) -> Iterator[None]:
    """Run a stage that a user asked for with so many isl operations; Ctrl-C ends it. Inside another budget, or a
    quota, this does nothing: the outer one decides.

    Raises:
        OverBudget: the body needs more.
    """
    if isl.DEFAULT_CONTEXT.get_max_operations():
        yield
        return
    allowed = scaled(operations)
    check_time(stage)
    with interruptible():
        try:
            with quota(allowed):
                yield
        except QuotaExceeded as error:
            if not error.spent:
                raise
            raise over_budget(stage, allowed, advice) from error


def over_budget(stage: str, allowed: int, advice: str) -> OverBudget:
    """The error of a stage that has used up its isl operations."""
    factor = f"{4 * _number('POLYC_BUDGET', 1.0):g}"
    return OverBudget(
        f"{stage} needs more than its {allowed:,} isl operations: {advice}, or allow more with POLYC_BUDGET={factor}"
    )


_clock = threading.local()


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    """Compile one thing; `check_time` in the body raises when it has taken too long."""
    if getattr(_clock, "end", None) is not None:
        yield
        return
    limit = _number("POLYC_TIME_LIMIT", TIME_LIMIT)
    _clock.end, _clock.what, _clock.limit = time.monotonic() + limit, what, limit
    try:
        yield
    finally:
        _clock.end = None


def check_time(stage: str) -> None:
    """Raise `TimeOver` where `time_limit` is over."""
    end = getattr(_clock, "end", None)
    if end is not None and time.monotonic() > end:
        raise TimeOver(
            f"compiling {_clock.what} has taken more than {_clock.limit:g} s and has come to '{stage}': "
            "use a simpler schedule or smaller operators, or allow more with POLYC_TIME_LIMIT=SECONDS"
        )


def time_limit_seconds() -> float:
    """Seconds for one operator or one kernel. Raises `BuildError` when `POLYC_TIME_LIMIT` is no positive number."""
    return _number("POLYC_TIME_LIMIT", TIME_LIMIT)


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise BuildError(f"{name} is '{text}': it must be a positive number")
    return value
