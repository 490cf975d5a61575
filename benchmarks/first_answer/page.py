"""The table of first answers, of one version or of two beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.report import geometric_mean

Row = dict[str, Any]
COLUMNS = {
    "cold": "cold s", "cold processors": "of processors", "cold answer": "first result s", "warm": "warm s",
    "warm processors": "of processors", "load": "load s", "memory": "peak MB",
}  # fmt: skip
"""Figures that are shown, with their titles; the ratios of two versions are new over old."""


def table(rows: Sequence[Row], versions: Sequence[str]) -> list[str]:
    """The lines of the table; `versions` are one, or the old and the new one."""
    heads = [f"{title}, {v}" if len(versions) > 1 else title for title in COLUMNS.values() for v in versions]
    lines = [f"| network | MB | {' | '.join(heads)} | ONNX Runtime s |", f"| --- |{' ---: |' * (len(heads) + 2)}"]
    lines += [line(row) for row in rows]
    good = [r for r in rows if not any(r["errors"])]
    sums = [
        [sum(r["found"][k].get(f, 0.0) for r in good) for k in range(len(versions))] for f in COLUMNS if f != "memory"
    ]
    most = [max((r["found"][k].get("memory", 0) for r in good), default=0) for k in range(len(versions))]
    cells = [f"{x:.2f}" for pair in sums for x in pair] + [_shown("memory", x) for x in most]
    opened = sum(r["onnxruntime"] or 0.0 for r in good)
    lines.append(f"| sum of {len(good)} (memory: most) | | {' | '.join(cells)} | {opened:.2f} |")
    if len(versions) > 1:
        lines.append(f"| new over old: of sums | | {' | '.join(_ratios(sums, most))} | |")
        lines.append(f"| new over old: geometric mean | | {' | '.join(_means(good))} | |")
    return lines


def line(row: Row) -> str:
    """The row of a network."""
    if any(row["errors"]):
        return f"| {row['network']} | {row['megabytes']:.1f} | {' / '.join(e or 'runs' for e in row['errors'])} |"
    cells = [_shown(f, found[f]) if f in found else "" for f in COLUMNS for found in row["found"]]
    opened = "" if row["onnxruntime"] is None else f"{row['onnxruntime']:.2f}"
    return f"| {row['network']} | {row['megabytes']:.1f} | {' | '.join(cells)} | {opened} |"


def _shown(figure: str, value: float) -> str:
    return f"{value / 1e6:.0f}" if figure == "memory" else f"{value:.2f}"


def _ratios(sums: Sequence[Sequence[float]], most: Sequence[float]) -> list[str]:
    return [cell for old, new in (*sums, most) for cell in ("", f"{new / old:.2f}" if old else "")]


def _means(rows: Sequence[Row]) -> list[str]:
    cells = []
    for figure in COLUMNS:
        both = [(r["found"][0], r["found"][1]) for r in rows if all(figure in f for f in r["found"])]
        ratios = [new[figure] / old[figure] for old, new in both if old[figure] and new[figure]]
        cells += ["", f"{geometric_mean(ratios):.2f}" if ratios else ""]
    return cells
