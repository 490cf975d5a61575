"""Public functions and methods without a docstring: `python -m tests.undocumented [FOLDER ...]`.

`tests/test_undocumented.py` holds the counts.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("emit/gpu", "scheduler")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(body: list[ast.stmt], inherited: frozenset[str] = frozenset()) -> Iterator[Function]:
    """Public functions of a module and public methods of its public classes, but for methods that say no more than
    those that they override."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from functions(node.body, _documented_in(node.bases))
        elif isinstance(node, Function) and not node.name.startswith("_") and node.name not in inherited:
            yield node


def _documented_in(bases: list[ast.expr]) -> frozenset[str]:
    """Methods that classes of these names document, and what they inherit."""
    found: set[str] = set()
    for node in (CLASSES[b.id] for b in bases if isinstance(b, ast.Name) and b.id in CLASSES):
        found |= {m.name for m in node.body if isinstance(m, Function) and ast.get_docstring(m) is not None}
        found |= _documented_in(node.bases)
    return frozenset(found)


def _parsed(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


CLASSES = {n.name: n for f in FOLDERS for _, tree in _parsed(f) for n in tree.body if isinstance(n, ast.ClassDef)}


def undocumented(folder: str) -> list[str]:
    """`FILE:LINE NAME` of each without a docstring."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, tree in _parsed(folder)
        for node in functions(tree.body)
        if ast.get_docstring(node) is None
    ]


def main(folders: list[str]) -> None:
    """Print them, and how many there are in each folder."""
    for folder in folders or FOLDERS:
        found = undocumented(folder)
        print(*found, f"{len(found)} in {folder}\n", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
