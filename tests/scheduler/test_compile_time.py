"""Compilation grows in proportion to the program, counted in operations that are the same everywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import islpy as isl
import pytest

from benchmarks import compile_time
from polyc.poly.budgets import OverBudget
from polyc.poly.depth import nested
from polyc.poly.quota import _used, quota

LIMIT = 1_000_000_000


def operations(work: Callable[[], Any]) -> int:
    """How many operations of isl `work` takes: a quota tells by what it leaves."""
    with quota(LIMIT):
        work()
        left = isl.DEFAULT_CONTEXT.get_max_operations()
        return LIMIT - (left - _used(left))


@pytest.mark.parametrize("kind, n", [("stencils", 8), ("mixed", 24)])
def test_twice_the_program_takes_twice_the_operations(kind: str, n: int, tmp_path: Path) -> None:
    def cost(size: int) -> int:
        operator = compile_time.program(kind, size, tmp_path)
        return operations(lambda: operator.compile(N=1000, threads=1))

    once, twice = cost(n), cost(2 * n)
    assert 1000 < once and twice <= 2.5 * once, f"{kind}: {once} operations for {n}, {twice} for {2 * n}"


def calls(work: Callable[[], Any]) -> int:
    """How many functions are called while `work` runs."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", ["straight", "terms"])
def test_a_run_of_assignments_twice_as_long_takes_twice_the_calls(kind: str, tmp_path: Path) -> None:
    def cost(size: int) -> int:
        operator = compile_time.program(kind, size, tmp_path)
        return calls(lambda: operator.compile(N=1000, threads=1))

    cost(40)  # imports
    once, twice = cost(100), cost(200)
    assert twice <= 2.2 * once, f"{kind}: {once} calls for 100, {twice} for 200"


def test_what_is_nested_too_deeply_is_refused_in_one_line() -> None:
    def deeper(n: int) -> int:
        return deeper(n + 1)

    before = sys.getrecursionlimit()
    with pytest.raises(OverBudget, match="^program: loops, buffers or expressions are nested too deeply"):
        with nested("program"):
            deeper(0)
    assert sys.getrecursionlimit() == before
