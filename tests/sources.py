"""Reading Python files as trees, for tests that look at the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def statements(path: Path) -> Iterator[ast.AST]:
    """All statements of a Python file, also those inside others. `ast.walk` takes several times as long: most of a
    tree are expressions."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            inside = getattr(node, field, None)
            if isinstance(inside, list):
                waiting += inside
        if isinstance(node, ast.stmt):
            yield node
