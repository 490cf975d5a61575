"""Pictures of the examples, as SVG: the points of an iteration space in the order in which they run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from polyc import Schedule
from polyc.emit.interpreter.interp import poisoned, run
from polyc.emit.lowering.lower import proven_loops
from polyc.poly.binding import evaluate

Point = tuple[float, float]
STEP, EDGE, HEAD, WIDTH = 22, 30, 14, 260  # pixels between points, around a panel, for a title
WRONG, RIGHT = "#c0392b", "#9aa0a8"


def executed(schedule: Schedule) -> list[tuple[str, tuple[int, ...]]]:
    """Statements and iterators in the order in which the generated loops run them; sizes are numbers."""
    found: list[tuple[str, tuple[int, ...]]] = []
    loops = proven_loops(schedule.scop, schedule.tree, "loops")
    arrays = {b.name: poisoned(tuple(evaluate(e, {}) for e in b.shape), b.dtype) for b in loops.buffers}
    run(loops, arrays, {}, observer=lambda statement, point: found.append((statement, point)))
    return found


@dataclass(frozen=True)
class Panel:
    """Points in the order in which they run, labels at some of them, and arrows (`True`: drawn as wrong).

    `blocks`: what each point belongs to; points of a block have one colour.
    """

    title: str
    points: Sequence[Point]
    blocks: Sequence[object] = ()
    labels: Mapping[Point, str] = field(default_factory=dict)
    arrows: Sequence[tuple[Point, Point, bool]] = ()
    path: bool = True


def panels(drawn: Sequence[Panel], across: str, up: str, beside: bool = True) -> str:
    """The panels side by side or one below the other, as SVG. What runs first is blue, what runs last yellow."""
    width = max(WIDTH, max(max(x for x, _ in p.points) for p in drawn) * STEP + 2 * EDGE)
    height = max(max(y for _, y in p.points) for p in drawn) * STEP + 2 * EDGE + HEAD
    parts = []
    for k, panel in enumerate(drawn):
        dx, dy = (k * width, 0.0) if beside else (0.0, k * height)
        parts += _panel(panel, dx, dy, height, across, up)
    w, h = (len(drawn) * width, height) if beside else (width, len(drawn) * height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" role="img" '
        f'aria-label="{escape("; ".join(p.title for p in drawn))}" font-family="sans-serif" font-size="11">'
        f'<path d="M0 0h{w:.0f}v{h:.0f}H0z" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


COLOURS = ("#999999", "#c0392b", "#2471a3", "#27ae60")


def curves(drawn: Mapping[str, Sequence[float]], across: str, up: str, lowest: float = 0.0) -> str:
    """Lines over their numbers 0, 1, ... as SVG, each with its name; what lies below `lowest` is cut off."""
    width, height, edge = 560, 260, 44
    most, last = max(max(v) for v in drawn.values()), max(len(v) for v in drawn.values()) - 1
    right, bottom, high = width - 10, height - edge, height - edge - 20
    parts = [
        f'<path d="M0 0h{width}v{height}H0z" fill="#ffffff"/>',
        f'<path d="M{edge},10V{bottom}H{right}" stroke="#000000" fill="none"/>',
        f'<text x="{(edge + right) // 2}" y="{height - 8}" text-anchor="middle">{escape(across)}</text>',
        f'<text transform="translate(12,{bottom - high // 2})rotate(-90)" text-anchor="middle">{escape(up)}</text>',
    ]
    for part in (0.0, 0.5, 1.0):
        x, y, value = edge + part * (right - edge), bottom - part * high, lowest + part * (most - lowest)
        anchor = "end" if part == 1 else "middle"
        parts.append(f'<text x="{x:.0f}" y="{bottom + 15}" text-anchor="{anchor}">{round(part * last)}</text>')
        parts.append(f'<text x="{edge - 4}" y="{y + 4:.0f}" text-anchor="end">{value:.1f}</text>')
    for k, (name, values) in enumerate(drawn.items()):
        colour = COLOURS[k % len(COLOURS)]
        points = " ".join(
            f"{edge + i / max(last, 1) * (right - edge):.1f},"
            f"{bottom - (max(v, lowest) - lowest) / ((most - lowest) or 1) * high:.1f}"
            for i, v in enumerate(values)
        )
        parts.append(f'<polyline points="{points}" stroke="{colour}" stroke-width="1.5" fill="none"/>')
        parts.append(f'<text x="{right}" y="{24 + 18 * k}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{escape("; ".join(drawn))}" font-family="sans-serif" font-size="12">{"".join(parts)}</svg>\n'
    )


def _panel(panel: Panel, dx: float, dy: float, height: float, across: str, up: str) -> list[str]:
    def at(p: Point) -> str:
        return f"{dx + EDGE + p[0] * STEP:.1f} {dy + height - EDGE - p[1] * STEP:.1f}"

    parts = [f'<text x="{dx + EDGE - 8:.0f}" y="{dy + 18:.0f}" font-weight="bold">{escape(panel.title)}</text>']
    parts.append(f'<text x="{dx + EDGE:.0f}" y="{dy + height - 6:.0f}" fill="#666666">{escape(across)} →</text>')
    if up:
        x, y = dx + 10, dy + height - EDGE
        turned = f'transform="rotate(-90 {x:.0f} {y:.0f})"'
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" fill="#666666" {turned}>{escape(up)} →</text>')
    if panel.path:
        line = "L".join(at(p) for p in panel.points)
        parts.append(f'<path d="M{line}" fill="none" stroke="#aab1bb"/>')
    for source, sink, wrong in panel.arrows:
        parts.append(f'<path d="M{at(source)}L{at(sink)}" stroke="{WRONG if wrong else RIGHT}" stroke-width="1.5"/>')
    blocks = list(dict.fromkeys(panel.blocks or range(len(panel.points))))
    last = max(1, len(blocks) - 1)
    for k, point in enumerate(panel.points):
        x, y = at(point).split()
        share = blocks.index(panel.blocks[k] if panel.blocks else k) / last
        parts.append(f'<circle cx="{x}" cy="{y}" r="{8 if panel.labels else 6}" fill="{_colour(share)}"/>')
        if point in panel.labels:
            label, ink = escape(panel.labels[point]), f'fill="{"#ffffff" if share < 0.6 else "#222222"}"'
            parts.append(
                f'<text x="{x}" y="{float(y) + 3.5:.1f}" text-anchor="middle" font-size="9" {ink}>{label}</text>'
            )
    return parts


def _colour(share: float) -> str:
    """From blue through green to yellow."""
    first, middle, last = (59, 82, 139), (33, 145, 140), (253, 231, 37)
    a, b, t = (first, middle, 2 * share) if share < 0.5 else (middle, last, 2 * share - 1)
    return "#" + "".join(f"{round(u + (v - u) * t):02x}" for u, v in zip(a, b, strict=True))


def picture(draw: Callable[[], str], what: str) -> None:
    """Write the picture if the command line asks for one: `--picture FILE.svg`."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="write the picture there")
    file = parser.parse_args().picture
    if file is not None:
        file.write_text(draw(), encoding="utf-8")
        print(f"the picture: {file.name}")
