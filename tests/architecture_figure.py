"""The figure of docs/architecture.md, drawn from the code: `python -m tests.architecture_figure` writes it.

The folders come from the disk, their order from the imports, what is said of each from its docstring, and the passes
from the lists that run.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path

from examples.matmul import matmul
from polyc.emit.gpu import targets
from polyc.emit.gpu.lower import passes as gpu_passes
from polyc.emit.pipeline import passes as loop_passes
from polyc.graph_driver.passes.manager import PASSES, PLACING, REWRITING
from polyc.scheduler.strategies.auto import STRATEGIES
from polyc.scheduler.strategies.gpu.stages import GPU_STRATEGIES

ROOT = Path(__file__).resolve().parent.parent
FIGURE = ROOT / "docs" / "pictures" / "architecture.svg"

COLUMNS: Sequence[Sequence[tuple[str, str, str]]] = (
    (
        ("frontend_dsl", "an operator's text", "Scop"),
        ("scheduler", "Scop", "schedule tree"),
        ("emit", "Scop and schedule tree", "kernel"),
        ("poly", "", ""),
    ),
    (("graph_driver", "an ONNX file", "model"),),
)
"""Each package with what it is given and what it makes; `poly` is what the others are written in."""

WIDTH, GAP, ROW, ARROW = 600, 30, 14, 30
NAME, LETTER = 122, 6.0  # pixels for the name of a room, and of a letter of text
INK, FAINT, GROUND, PASS = "#222222", "#5d636d", "#f4f6f9", "#3b6fb6"


def rooms(package: str) -> list[str]:
    """The folders of a package that hold code: a room stands below all that it imports, directly or not, where these do
    not import it; in the order of the flow where the test of the floors has one."""
    found = sorted(p.parent.name for p in (ROOT / package).glob("*/__init__.py"))
    if package in floors():
        return sorted(found, key=floors()[package].index)
    needs = {name: _imported(package, name) & set(found) for name in found}
    return sorted(found, key=lambda name: (len(_reached(name, needs)), name))


@cache
def floors() -> dict[str, tuple[str, ...]]:
    """The rooms of packages from below, as the test has them."""
    text = (ROOT / "tests" / "test_floors.py").read_text(encoding="utf-8")
    assigned = [n for n in ast.parse(text).body if isinstance(n, ast.Assign)]
    return next(dict(ast.literal_eval(n.value)) for n in assigned if ast.unparse(n.targets[0]) == "ROOMS")


@cache
def _imported(package: str, name: str) -> set[str]:
    """The rooms of the same package that the files of a room import."""
    wanted = re.compile(rf"^\s*(?:from|import) polyc\.{package}\.(\w+)", re.MULTILINE)
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / package / name).rglob("*.py"))
    return {m for text in texts for m in wanted.findall(text)} - {name}


def _reached(name: str, needs: Mapping[str, set[str]]) -> set[str]:
    """All that a room imports, and what that imports."""
    seen, new = set(), set(needs[name])
    while new:
        seen |= new
        new = set().union(*(needs[n] for n in new)) - seen
    return seen - {name}


def said(folder: Path) -> str:
    """The first sentence of a package's docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return re.split(r"\.(?:\s|$)", text.partition("\n\n")[0], maxsplit=1)[0].replace("`", "")


def lists() -> dict[tuple[str, str], dict[str, list[str]]]:
    """Of the rooms that hold what is run in order: what it is called, and the names."""
    return {
        ("scheduler", "strategies"): {"CPU": list(STRATEGIES), "GPU": list(GPU_STRATEGIES)},
        ("emit", "passes"): {"loops": [name for name, _ in loop_passes()]},
        ("emit", "gpu"): {"launches": [name for name, _ in gpu_passes(matmul.scop(), targets.get("cuda"))]},
        ("graph_driver", "passes"): {
            "until nothing changes": [p.name for p in PASSES if p.phase == REWRITING],
            "then once": [p.name for p in PASSES if p.phase == PLACING],
        },
    }


def figure() -> str:
    """The SVG."""
    parts, lowest = [], 0.0
    for k, column in enumerate(COLUMNS):
        y = 10.0
        for package, given, made in column:
            drawn, y = _package(10 + k * (WIDTH + GAP), y, package, given, made)
            parts += drawn
        lowest = max(lowest, y)
    width, height, body = 2 * WIDTH + GAP + 20, lowest + 4, "\n".join(parts)  # a line each: changes merge
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" role="img" '
        f'aria-label="The packages of polyc, their folders and passes" font-family="sans-serif" font-size="11">'
        f'<path d="M0 0h{width}v{height:.0f}H0z" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _package(x: float, y: float, package: str, given: str, made: str) -> tuple[list[str], float]:
    """A box of a package with its rooms, and where the next one begins."""
    parts = []
    if given:
        parts += _arrow(x + WIDTH / 2, y, given)
        y += ARROW
    top, y = y, y + 20
    body = [_text(x + 10, y, f"{package}/", size=14, weight="bold")]
    for line in _wrapped(said(ROOT / package)):
        body.append(_text(x + NAME, y, line, FAINT))
        y += ROW
    y -= ROW
    for name in rooms(package):
        y += ROW + 3
        body.append(_text(x + 10, y, f"{name}/", weight="bold"))
        for line in _wrapped(said(ROOT / package / name)):
            body.append(_text(x + NAME, y, line))
            y += ROW
        for title, names in lists().get((package, name), {}).items():
            for line in _wrapped(f"{title}: {' → '.join(names)}"):
                body.append(_text(x + NAME, y, line, PASS))
                y += ROW
        y -= ROW
    y += 12
    parts.append(
        f'<rect x="{x}" y="{top:.0f}" width="{WIDTH}" height="{y - top:.0f}" rx="6" fill="{GROUND}" stroke="{FAINT}"/>'
    )
    parts += body
    if made and package in ("emit", "graph_driver"):
        parts += _arrow(x + WIDTH / 2, y, made)
        y += ARROW
    return parts, y + (0 if made else 6)


def _wrapped(text: str) -> Iterator[str]:
    """Lines that fit beside the name of a room."""
    return iter(textwrap.wrap(text, int((WIDTH - NAME - 10) / LETTER), break_on_hyphens=False) or [""])


def _arrow(x: float, y: float, label: str) -> list[str]:
    """Downwards, with what is handed over beside it."""
    end = y + ARROW - 6
    return [
        f'<path d="M{x:.0f} {y + 4:.0f}V{end:.0f}m-4 -6l4 6l4 -6" fill="none" stroke="{INK}"/>',
        _text(x + 10, y + ARROW / 2 + 3, label, weight="bold"),
    ]


def _text(x: float, y: float, text: str, colour: str = INK, size: int = 11, weight: str = "normal") -> str:
    look = f'fill="{colour}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {look}>{escape(text)}</text>'


def main() -> None:
    """Write the figure."""
    FIGURE.write_text(figure(), encoding="utf-8")
    print(FIGURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
