"""Plots of results as SVG text: ratios as bars, and operators under the machine's roofs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, BAR, LABELS = 760, 18, 300
TICKS = (0.25, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
COLOURS = {
    "gemm": "#3b6fb6", "conv": "#c8642b", "memory": "#4a8f57", "odd": "#b59a2c", "cliffs": "#8a4f7d",
    "model": "#7d5ba6", "packaged": "#a0522d", "exported": "#2f8f9d",
}  # fmt: skip
OTHER = "#777777"
SLOWER = "#b3343f"


def ratio_bars(rows: Sequence[Mapping[str, Any]]) -> str:
    """One bar a case, as long as the logarithm of its ratio, to the right of 1 where polyc is faster."""
    if not rows:
        return ""
    logs = [math.log2(r["ratio"]) for r in rows]
    low, high = min(math.log2(0.7), *logs) - 0.12, max(1.0, *logs)
    scale = (WIDTH - LABELS - 50) / (high - low)
    middle = LABELS - scale * low
    height = BAR * len(rows) + 24
    parts = []
    for ratio in TICKS:
        if low <= math.log2(ratio) <= high:
            x = middle + scale * math.log2(ratio)
            parts.append(_line(x, 0, x, height - 16, "#333333" if ratio == 1.0 else "#cccccc"))
            parts.append(_text(x, height - 3, f"{ratio:g}", "middle"))
    for k, (r, log) in enumerate(zip(rows, logs, strict=True)):
        length = scale * log
        y, x = BAR * k + 2, min(middle, middle + length)
        colour = SLOWER if r["ratio"] < 0.8 else COLOURS.get(r["family"], OTHER)
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{abs(length):.1f}" height="{BAR - 4}" fill="{colour}"/>')
        parts.append(_text(LABELS - 6, y + 11, r["case"], "end"))
        parts.append(_text(max(middle, middle + length) + 4, y + 11, f"{r['ratio']:.2f}", "start"))
    return _svg(height, parts, "Ratios to the best peer")


def bars(values: Mapping[str, float], lines: Mapping[str, float], unit: str) -> str:
    """One bar a value, from 0, and a vertical line for each limit that it is held against."""
    scale = (WIDTH - LABELS - 60) / max(*values.values(), *lines.values())
    height = BAR * len(values) + 34
    parts = []
    for k, (name, value) in enumerate(lines.items()):
        x = LABELS + scale * value
        parts.append(_line(x, 0, x, height - 32 + 13 * k, "#333333"))
        parts.append(_text(x, height - 20 + 13 * k, f"{name} {value:.0f}", "middle"))
    for k, (name, value) in enumerate(values.items()):
        y, length = BAR * k + 2, scale * value
        colour = COLOURS["gemm"]
        parts.append(f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR - 4}" fill="{colour}"/>')
        parts.append(_text(LABELS - 6, y + 11, name, "end"))
        parts.append(_text(LABELS + length + 4, y + 11, f"{value:.1f}", "start"))
    parts.append(_text(LABELS, height - 20, unit, "start"))
    return _svg(height, parts, unit)


def roofline(rows: Sequence[Mapping[str, Any]], flops_per_second: float, bytes_per_second: float) -> str:
    """GFLOP/s over flops per byte, both logarithmic, below what arithmetic and memory allow."""
    points = [(r["gflops"] / r["gbytes"], r["gflops"], r) for r in rows if r.get("gflops") and r.get("gbytes")]
    if not points:
        return ""
    peak, slope = flops_per_second / 1e9, bytes_per_second / 1e9
    left = min(0.1, *(x for x, _, _ in points)) / 1.5
    right = max(100.0, *(x for x, _, _ in points)) * 1.5
    low, high = min(1.0, *(y for _, y, _ in points)) / 1.5, max(peak, *(y for _, y, _ in points)) * 1.5
    height, edge = 440, 46

    def across(x: float) -> float:
        return edge + (WIDTH - edge - 10) * math.log(x / left) / math.log(right / left)

    def down(y: float) -> float:
        return (height - 50) * (1 - math.log(y / low) / math.log(high / low)) + 24

    parts = []
    for decade in range(math.ceil(math.log10(left)), math.floor(math.log10(right)) + 1):
        parts.append(_line(across(10.0**decade), 24, across(10.0**decade), height - 26, "#dddddd"))
        parts.append(_text(across(10.0**decade), height - 12, f"{10.0**decade:g}", "middle"))
    for decade in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        parts.append(_line(edge, down(10.0**decade), WIDTH - 10, down(10.0**decade), "#dddddd"))
        parts.append(_text(edge - 5, down(10.0**decade) + 4, f"{10.0**decade:g}", "end"))
    knee = peak / slope
    start = max(left, low / slope)
    end = min(knee, right)
    parts.append(_line(across(start), down(start * slope), across(end), down(end * slope), "#333333"))
    if knee < right:
        parts.append(_line(across(max(knee, left)), down(peak), across(right), down(peak), "#333333"))
    parts.append(_text(WIDTH - 12, down(peak) - 5, f"{peak:.0f} GFLOP/s", "end"))
    for x, y, r in points:
        colour = COLOURS.get(r["family"], OTHER)
        title = (
            f"{r['case']}: {y:.1f} GFLOP/s, {x:.1f} flops a byte, {100 * y / min(peak, x * slope):.0f} % of its roof"
        )
        parts.append(
            f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="5" fill="{colour}" fill-opacity="0.8">'
            f"<title>{escape(title)}</title></circle>"
        )
    for k, family in enumerate(dict.fromkeys(r["family"] for _, _, r in points)):
        x = edge + 14 + 80 * k
        parts.append(f'<rect x="{x}" y="4" width="10" height="10" fill="{COLOURS.get(family, OTHER)}"/>')
        parts.append(_text(x + 15, 13, family, "start"))
    parts.append(_text(WIDTH / 2, height - 3, "flops per byte", "middle"))
    parts.append(_text(WIDTH - 12, 13, "GFLOP/s", "end"))
    return _svg(height, parts, "Roofline")


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    """On white, so that the text can be read on pages of any colour."""
    ground = f'<path d="M0 0h{WIDTH}v{height}H0z" fill="#ffffff"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        f'aria-label="{label}" font-family="sans-serif" font-size="11">{ground}{"".join(parts)}</svg>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222">{escape(text)}</text>'
