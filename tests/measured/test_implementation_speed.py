"""Choosing among implementations: never slower than the naive choice, in the order that the model predicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean

import pytest

from benchmarks.ranking import WANTED, spearman
from tests.measured.benchmark import rows_of

pytestmark = pytest.mark.bench
SLOWER = 1.05  # what choosing by cost may take of the naive choice's time


def test_nine_light_models_beside_one_kernel_for_each_node(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """C2: never more than 5 % slower, faster on one at least."""
    ratios = {r["network"]: r["ratio"] for r in rows_of(tmp_path, "benchmarks.naive", judges=True)}
    worst = min(ratios, key=lambda n: ratios[n])
    record_property("figure", f"{worst} {ratios[worst]:.2f} to {max(ratios.values()):.2f} times as fast")
    assert len(ratios) == 9
    assert ratios[worst] > 1 / SLOWER and max(ratios.values()) > 1


@pytest.mark.parametrize("which", ["first", "second"])
def test_order_of_candidates(which: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """C10: Spearman's correlation of predicted and measured times, over all and as the mean of the shapes'."""
    rows = rows_of(tmp_path, "benchmarks.ranking", "--set", which)
    pairs = [(c["cycles"], c["seconds"]) for r in rows for c in r["candidates"].values()]
    overall = spearman(*zip(*pairs, strict=True))
    within = mean(r["correlation"] for r in rows)
    record_property(
        "figure", f"{which} set of {len(rows)} shapes: {overall:.2f} over all, mean {within:.2f} within one"
    )
    assert len(rows) >= 30
    assert overall >= WANTED and within >= WANTED
