"""Public functions, methods and classes without a docstring: `python -m tests.undocumented [FOLDER ...]`.

`tests/test_undocumented.py` holds the counts.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def definitions(body: list[ast.stmt], folder: str, inherited: frozenset[str] = frozenset()) -> Iterator[Definition]:
    """Public functions and classes of a module and public methods of its public classes, but for methods that say no
    more than those that they override."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node
            yield from definitions(node.body, folder, _documented_in(node.bases, folder))
        elif isinstance(node, Function) and not node.name.startswith("_") and node.name not in inherited:
            yield node


def _documented_in(bases: list[ast.expr], folder: str) -> frozenset[str]:
    """Methods that classes of these names document, in this folder or in `poly`, and what they inherit."""
    found: set[str] = set()
    for name in (b.id for b in bases if isinstance(b, ast.Name)):
        node = _classes(folder).get(name, _classes("poly").get(name))
        if node is not None:
            found |= {m.name for m in node.body if isinstance(m, Function) and ast.get_docstring(m) is not None}
            found |= _documented_in(node.bases, folder)
    return frozenset(found)


@cache
def _classes(folder: str) -> dict[str, ast.ClassDef]:
    return {n.name: n for _, tree in _parsed(folder) for n in tree.body if isinstance(n, ast.ClassDef)}


def _parsed(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def undocumented(folder: str) -> list[str]:
    """`FILE:LINE NAME` of each without a docstring in a package or a folder of it."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, tree in _parsed(folder)
        for node in definitions(tree.body, folder.split("/")[0])
        if ast.get_docstring(node) is None
    ]


def main(folders: list[str]) -> None:
    """Print them, and how many there are in each folder."""
    for folder in folders or FOLDERS:
        found = undocumented(folder)
        print(*found, f"{len(found)} in {folder}\n", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
