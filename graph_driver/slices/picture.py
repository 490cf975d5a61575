"""A slice as a picture: a frame for each tensor, its last two dimensions drawn to scale, the slice filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

FRAME = 132  # pixels of a frame's longer side
GAP = 34  # between frames, and room for two lines of text below
COLUMNS = 6
FILL, LINE, BACK = "#c8553d", "#3a3a3a", "#f4f1ea"
STYLE = f"font: 11px sans-serif; background: white; color: {LINE}"


def picture(data: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> str:
    """SVG of what `described` gave, of the tensors with at least two dimensions whose elements are a product of runs;
    weights are left out. `shapes` are those of the tensors."""
    forwards = data["forwards"]
    rows = [r for r in data["tensors"] if r["role"] != "weight" and r["sides"] and len(r["sides"]) > 1]
    order = ("input", "between", "output")
    rows.sort(key=lambda r: order.index(r["role"]))
    cell = FRAME + GAP
    columns = max(1, min(COLUMNS, len(rows)))
    width, height = columns * cell + GAP, ((len(rows) + columns - 1) // columns) * (cell + GAP) + 2 * GAP
    head = ("what depends on " if forwards else "what counts for ") + ", ".join(data["asked"])
    body = [f'<text x="{GAP}" y="{GAP // 2 + 4}" font-weight="bold">{escape(head)}</text>']
    for k, r in enumerate(rows):
        x, y = GAP + (k % columns) * cell, GAP + (k // columns) * (cell + GAP)
        body += _frame(x, y, r, shapes[r["name"]])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" style="{STYLE}">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _frame(x: int, y: int, r: Mapping[str, Any], shape: Sequence[int]) -> Iterable[str]:
    rows, columns = shape[-2:]
    scale = FRAME / max(rows, columns, 1)
    size = f'width="{columns * scale:.1f}" height="{rows * scale:.1f}"'
    yield f'<rect x="{x}" y="{y}" {size} fill="{BACK}" stroke="{LINE}"/>'
    for first, last, step in r["sides"][-2]:
        for left, right, stride in r["sides"][-1]:
            yield from _cells(x, y, scale, (first, last, step), (left, right, stride))
    name = r["name"] if len(r["name"]) <= 22 else r["name"][:21] + "…"
    kind = f"{r['node']}, " if r["node"] else ""
    share = 100 * r["count"] / max(1, r["of"])
    yield f'<text x="{x}" y="{y + FRAME + 14}">{escape(name)}</text>'
    yield f'<text x="{x}" y="{y + FRAME + 28}" fill="#777">{escape(kind)}{share:.3g} %</text>'


def _cells(x: int, y: int, scale: float, down: tuple[int, int, int], across: tuple[int, int, int]) -> Iterable[str]:
    """One rectangle where both runs are dense, else one for each row or column of them."""
    bars_down = [(down[0], down[1])] if down[2] == 1 else [(k, k) for k in range(down[0], down[1] + 1, down[2])]
    bars = [(across[0], across[1])] if across[2] == 1 else [(k, k) for k in range(across[0], across[1] + 1, across[2])]
    for top, bottom in bars_down:
        for left, right in bars:
            size = (right - left + 1) * scale, (bottom - top + 1) * scale
            yield (
                f'<rect x="{x + left * scale:.1f}" y="{y + top * scale:.1f}" width="{size[0]:.1f}" '
                f'height="{size[1]:.1f}" fill="{FILL}"/>'
            )
