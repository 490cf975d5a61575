"""Which cases of a test with many run each time, and which among the long tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


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
