"""Kernels: fused ones, known sizes, tiles that a model chose, PolyBench."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.fused import Row
from benchmarks.polybench.sources import WHERE
from benchmarks.report import geometric_mean
from benchmarks.tiles import FAMILIES, LIMIT
from examples.polybench import MODULES
from tests.measured.benchmark import rows_of

pytestmark = pytest.mark.bench
CLOCK = 0.02  # what two times of one program differ by
SOURCE = "POLYBENCH_SOURCE"


def test_a_fused_convolution_takes_no_longer(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """B5: one kernel, at most the time of the nodes one by one."""
    rows = [Row(r["case"], r["fused"], r["apart"], tuple(r["kernels"])) for r in rows_of(tmp_path, "benchmarks.fused")]
    gains = [r.gain for r in rows]
    record_property("figure", f"{len(rows)} blocks {min(gains):.2f} to {max(gains):.2f} times as fast")
    assert all(r.kernels[0] < r.kernels[1] for r in rows)
    assert min(gains) > 1 - CLOCK


def test_known_sizes_beside_symbolic_ones(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """F28: faster in 80 of 100 small products."""
    gains = [r["gain"] for r in rows_of(tmp_path, "benchmarks.specialised")]
    faster = sum(g > 1 for g in gains)
    record_property("figure", f"{faster} of {len(gains)} faster, geometric mean {geometric_mean(gains):.2f}")
    assert len(gains) >= 20 and faster >= 0.8 * len(gains)


@pytest.mark.parametrize("family", FAMILIES)
def test_tiles_beside_the_best_of_a_grid(
    family: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """F3: the model's tile within 20 % of the best."""
    ratios = [r["ratio"] for r in rows_of(tmp_path, "benchmarks.tiles", "--family", family)]
    record_property("figure", f"{family} at {len(ratios)} sizes: worst {max(ratios):.2f} of the best")
    assert len(ratios) >= 3 and max(ratios) <= LIMIT


@pytest.fixture
def polybench() -> str:
    """The folder of PolyBench/C."""
    folder = os.environ.get(SOURCE, "")
    if not folder:
        pytest.skip(f"{WHERE}; here: in the environment variable {SOURCE}")
    return folder


def test_polybench_beside_naive_c(
    polybench: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """F2: at LARGE on one thread twice as fast as gcc -O3 in the geometric mean of all thirty."""
    options = [
        "--family",
        "polybench",
        "--polybench-source",
        polybench,
        "--size",
        "LARGE",
        "--seconds",
        "2",
        "--limit",
        "200",
    ]
    rows = rows_of(tmp_path, "benchmarks", *options)
    gains = {r["kernel"]: r["over_gcc"] for r in rows if r["over_gcc"] is not None}
    least = min(gains, key=lambda k: gains[k])
    record_property(
        "figure", f"{geometric_mean(gains.values()):.2f} times gcc's speed, least {gains[least]:.2f} ({least})"
    )
    assert gains.keys() == set(MODULES), f"no figure of {set(MODULES) - gains.keys()}"
    assert geometric_mean(gains.values()) >= 2


def test_a_product_beside_polly(polybench: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """F19: PolyBench's gemm at least as fast as clang -O3 with Polly makes it."""
    if not any(map(shutil.which, ("clang-19", "clang"))):
        pytest.skip("no clang")
    options = ["--family", "polybench", "--polybench-source", polybench, "--only", "gemm", "--seconds", "2"]
    (row,) = rows_of(tmp_path, "benchmarks", *options)
    if "polly 1" not in row["ms"]:
        pytest.skip("clang has no Polly")
    gain = row["ms"]["polly 1"][0] / row["ms"]["polyc 1"][0]
    record_property("figure", f"gemm {gain:.2f} times Polly's speed")
    assert not row["wrong"] and gain >= 1
