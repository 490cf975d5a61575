"""Networks: beside other systems, and as tasks on two threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.measured.benchmark import rows_of

pytestmark = pytest.mark.bench


def test_resnet50_is_no_slower_than_the_best_of_its_peers(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """I1: a ratio of at least 1, as the page of results shows it."""
    rows = rows_of(tmp_path, "benchmarks", "--family", "model", "--only", "resnet50")
    (row,) = rows
    peers = sorted(row["ms"].keys() - {"polyc"})
    record_property("figure", f"ResNet-50 {row['ms']['polyc'][0]:.1f} ms, {row['ratio']:.2f} times the best of "
                    f"{', '.join(peers)}")  # fmt: skip
    assert peers and row["ratio"] >= 1


def test_branches_on_two_threads(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """E6: the branches of Inception as tasks, 1.5 times as fast as on one thread."""
    rows = rows_of(tmp_path, "benchmarks.overhead", "--threads", "2")
    (row,) = [r for r in rows if r["network"] == "inception_v1"]
    gain = row["one"] / row["tasks"]
    record_property("figure", f"inception_v1 {row['one']:.1f} ms on one thread, {row['tasks']:.1f} as tasks on two")
    assert gain > 1.5
