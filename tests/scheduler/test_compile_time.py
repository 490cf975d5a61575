"""Compilation grows in proportion to the program, counted in isl's operations, which are the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import islpy as isl
import pytest

from benchmarks import compile_time
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
