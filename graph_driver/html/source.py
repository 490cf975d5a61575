"""The lines of the program that the statements were written in."""

from __future__ import annotations

import ast
import linecache
from pathlib import Path
from typing import Any

from polyc.poly.expr import Span
from polyc.poly.scop import Scop

AROUND = 2  # lines shown around a statement whose file cannot be read as Python


def source_data(scop: Scop) -> list[dict[str, Any]]:
    """One entry a function: `file` (its name), `first` line number, `lines`, `statements` (name to
    lines), `blocks` (header line to the last line of its body)."""
    spans: dict[str, dict[str, Span]] = {}
    for s in scop.statements.values():
        if s.span is not None:
            spans.setdefault(s.span.file, {})[s.name] = s.span
    return [part for file, found in spans.items() for part in _file(file, found)]


def _file(file: str, spans: dict[str, Span]) -> list[dict[str, Any]]:
    lines = [line.rstrip("\n") for line in linecache.getlines(file)]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        tree = ast.Module([], [])
    extents = {(f.lineno - len(f.decorator_list), f.end_lineno or f.lineno)
               for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}  # fmt: skip
    parts: dict[tuple[int, int], dict[str, Span]] = {}
    for name, span in spans.items():
        around = [e for e in extents if e[0] <= span.line and span.end_line <= e[1]]
        extent = min(around, key=lambda e: e[1] - e[0], default=(max(1, span.line - AROUND), span.end_line + AROUND))
        parts.setdefault(extent, {})[name] = span
    return [_part(file, lines, tree, extent, found) for extent, found in sorted(parts.items())]


def _part(
    file: str, lines: list[str], tree: ast.Module, extent: tuple[int, int], spans: dict[str, Span]
) -> dict[str, Any]:
    first, last = extent
    text = lines[first - 1 : last]
    if not text:  # the file is gone: what the spans remember
        text = [s.text for s in spans.values()]
    headed = (ast.For, ast.If, ast.While, ast.With)
    blocks = {
        n.lineno: n.end_lineno
        for n in ast.walk(tree)
        if isinstance(n, headed) and first <= n.lineno and (n.end_lineno or 0) <= last
    }
    return {
        "file": Path(file).name,
        "first": first,
        "lines": text,
        "statements": {name: [s.line, s.end_line] for name, s in spans.items()},
        "blocks": blocks,
    }
