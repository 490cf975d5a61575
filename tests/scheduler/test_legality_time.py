"""How long legality checks and automatic schedules take (CPU time; `python -m benchmarks.legality` prints all)."""

from __future__ import annotations

import pytest

from benchmarks.legality import row
from examples import polybench


@pytest.mark.bench
@pytest.mark.parametrize("name", polybench.MODULES)
def test_checks_take_milliseconds(name: str) -> None:
    measured = row(name)
    assert measured["worst"] < 0.010, measured["which"]
    assert measured["its check"] < 0.010
    assert measured["automatic"] < 1.0
