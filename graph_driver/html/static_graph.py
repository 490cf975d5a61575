"""The steps of a model as a picture without a script: what `assets/graph.js` draws, for outputs of a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT, ACROSS, DOWN = 206, 50, 232, 86
_FAMILIES = (
    (r"Conv|MatMul|Gemm|Einsum|Attention|LSTM|GRU|RNN|WinogradProducts", "#0072b2"),
    (r"Pool|Reduce|ArgM|Softmax|Norm|TopK|CumSum", "#e69f00"),
    (r"^Cast$", "#d55e00"),
    (r"Transpose|Concat|Split|Slice|Gather|Scatter|Pad|Resize|Expand|Tile|Shape|Copy|Depth|Space|Winograd", "#cc79a7"),
    (r"", "#009e73"),
)


def graph_svg(
    boxes: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]], size: tuple[float, int],
    steps: Sequence[Mapping[str, Any]], tensors: Mapping[str, str],
) -> str:  # fmt: skip
    """Boxes and lines at the places of `model_page.drawing`; `tensors` are types by name."""
    width, height = _x(size[0]) + WIDTH + 30, _y(size[1] - 1) + HEIGHT + 30
    wires = "".join(_wire(line, tensors) for line in lines)
    drawn = "".join(_box(b, steps, tensors) for b in boxes)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" style="max-width:100%;max-height:60em" '
        f'role="img" aria-label="Graph of the model\'s steps">{wires}{drawn}</svg>'
    )


def _x(value: float) -> float:
    return 30 + value * ACROSS


def _y(layer: float) -> float:
    return 20 + layer * DOWN


def _wire(line: Mapping[str, Any], tensors: Mapping[str, str]) -> str:
    points = [(_x(x) + WIDTH / 2, _y(layer)) for x, layer in line["path"]]
    path = f"M{points[0][0]:.0f} {points[0][1] + HEIGHT:.0f}"
    for (px, py), (x, y) in zip(points, points[1:]):
        middle = (py + HEIGHT + y) / 2
        path += f"C{px:.0f} {middle:.0f} {x:.0f} {middle:.0f} {x:.0f} {y:.0f}"
        path += f"L{x:.0f} {y + HEIGHT:.0f}" if (x, y) != points[-1] else ""
    about = "\n".join(f"{t}: {tensors.get(t, '?')}" for t in line["tensors"])
    return f'<path class="wire" d="{path}"><title>{escape(about)}</title></path>'


def _box(box: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], tensors: Mapping[str, str]) -> str:
    kind, colour = box["kind"], ""
    if kind == "step":
        step = steps[box["step"]]
        kind, title = step["kind"], (step["label"] or step["kind"]).replace("polyc::", "")
        below = f"{'host · ' if kind == 'host' else ''}{tensors.get(step['results'][0], '') if step['results'] else ''}"
        if kind == "kernel":
            colour = next(c for pattern, c in _FAMILIES if re.search(pattern, title))
    else:
        title, below = f"{kind} {box['tensor']}", tensors.get(box["tensor"], "")
    stripe = f'<rect width="6" height="{HEIGHT}" rx="3" style="fill:{colour};stroke:none"/>' if colour else ""
    return (
        f'<g class="box k-{kind}" transform="translate({_x(box["x"]):.0f} {_y(box["layer"]):.0f})">'
        f"<title>{escape(title)}\n{escape(below)}</title>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="7"/>{stripe}'
        f'<text class="boxname" x="16" y="21">{escape(_cut(title, 22))}</text>'
        f'<text class="boxsub" x="16" y="39">{escape(_cut(below, 28))}</text></g>'
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
