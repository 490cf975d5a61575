"""Ten operators after two hundred trials each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.report import geometric_mean
from tests.measured.benchmark import rows_of
from tests.measured.test_kernel_speed import CLOCK

pytestmark = pytest.mark.bench


def test_two_hundred_trials_make_nothing_slower(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """F18: with n = 200 not slower than untuned on any of ten operators; the best so far never falls."""
    rows = rows_of(tmp_path, "benchmarks.trials")
    gains = [r["gain"] for r in rows]
    ends = f"{min(gains):.2f} to {max(gains):.2f} times as fast, {geometric_mean(gains):.2f} in the mean"
    record_property("figure", f"{len(rows)} operators {ends}")
    assert len(rows) == 10 and min(gains) > 1 - CLOCK
    assert all(r["best"] == sorted(r["best"]) and r["again"] == 0 for r in rows)
