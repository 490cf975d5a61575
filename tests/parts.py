"""Which cases of a test with many run each time, and which among the long tests.

Eleven thousand cases take CI longer than it has. Those of one test are much alike, so of a test with more than `ALL` of
them a part runs each time, spread over all; `pytest.mark.whole` exempts a test. A test that is asked for by name runs
all its cases: the marks count where `-m` asks for them (`make test`, `make test-long`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

ALL = 4  # cases of a test that run each time
EVERY = 4  # of those beyond


def in_part(cases: Iterable[Any], kept: Callable[..., bool], ids: Callable[..., str] | None = None) -> list[Any]:
    """Parameters of a test: those for which `kept(*case)` is true run each time, the others are long tests.

    A case that is no tuple is a single parameter. `ids` names a case.
    """
    found = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        name = None if ids is None else ids(*values)
        found.append(pytest.param(*values, id=name, marks=() if kept(*values) else pytest.mark.long))
    assert any(not p.marks for p in found)
    return found


def mark_spared_cases(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that do not run each time as long."""
    tests: dict[tuple[Any, str], list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec") and not any(item.get_closest_marker(m) for m in ("long", "bench", "whole")):
            tests.setdefault((item.path, item.nodeid.split("[")[0]), []).append(item)
    for cases in tests.values():
        kept = set(spread(len(cases)))
        for k, item in enumerate(cases):
            if k not in kept:
                item.add_marker("long")


def spread(count: int) -> list[int]:
    """Which of so many cases run each time: the first, the last and others in even steps between them."""
    kept = count if count <= ALL else ALL + (count - ALL) // EVERY
    return [k * (count - 1) // max(1, kept - 1) for k in range(kept)]
