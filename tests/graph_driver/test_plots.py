"""The plots of the benchmarks: well-formed SVG with a mark for every row."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.plots import ratio_bars, roofline

ROWS = [
    {"case": "a < b", "family": "gemm", "ratio": 2.0, "gflops": 50.0, "gbytes": 1.0},
    {"case": "slow", "family": "memory", "ratio": 0.3, "gflops": 1.0, "gbytes": 10.0},
    {"case": "model", "family": "other", "ratio": 1.0, "gflops": 0.0, "gbytes": 0.0},
]
SVG = "{http://www.w3.org/2000/svg}"


def test_a_bar_for_each_row() -> None:
    bars = list(ElementTree.fromstring(ratio_bars(ROWS)).iter(f"{SVG}rect"))
    starts, widths = ([float(b.get(k) or "nan") for b in bars] for k in ("x", "width"))
    assert len(bars) == 3 and widths[2] == 0.0
    assert starts[0] == starts[2] and abs(starts[1] + widths[1] - starts[0]) < 0.2  # from 1 to the right, to the left
    assert widths[1] > widths[0]


def test_points_lie_under_the_roofs() -> None:
    root = ElementTree.fromstring(roofline(ROWS, 1e11, 2e10))
    points = list(root.iter(f"{SVG}circle"))
    assert len(points) == 2  # the model has no operations counted
    assert [p.find(f"{SVG}title") is not None for p in points] == [True, True]


def test_no_rows_no_plots() -> None:
    assert ratio_bars([]) == "" and roofline([], 1e11, 1e10) == ""
