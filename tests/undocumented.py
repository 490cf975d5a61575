"""Public functions, methods and classes without a docstring, and errors that no docstring names:
`python -m tests.undocumented [FOLDER ...]`.

A function that raises an error itself names it in its docstring; where all do, that of the class or the module may. Of
steps and programs "Refused when" says it. `tests/test_undocumented.py` holds both lists empty.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
REFUSALS = ("ScheduleError", "IllegalSchedule")
PYTHONS = ("AssertionError", "AttributeError", "TypeError", "ValueError", "KeyError", "NotImplementedError")


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


@lru_cache(maxsize=1)
def _parsed(folder: str) -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted((ROOT / folder).rglob("*.py"))]


def undocumented(folder: str) -> list[str]:
    """`FILE:LINE NAME` of each without a docstring in a package or a folder of it."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, tree in _parsed(folder)
        for node in definitions(tree.body, folder.split("/")[0])
        if ast.get_docstring(node) is None
    ]


def unsaid_errors(folder: str) -> list[str]:
    """`FILE:LINE NAME ERROR` of each error that a public function raises itself and no docstring names."""
    found = []
    for path, tree in _parsed(folder):
        owners = {m: node for node in tree.body if isinstance(node, ast.ClassDef) for m in node.body}
        for node in definitions(tree.body, folder.split("/")[0]):
            around = [node, tree, *([owners[node]] if node in owners else [])]
            said = " ".join(ast.get_docstring(x) or "" for x in around)
            for error in sorted(raised(node)) if isinstance(node, Function) else ():
                refusal = error in REFUSALS and "Refused when" in said
                if not refusal and not re.search(rf"\b{error}\b", said):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {error}")
    return found


def raised(function: ast.AST) -> set[str]:
    """Errors that a function makes and raises, but for those that it catches and those of functions inside it."""
    found: set[str] = set()
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            found.add(node.exc.func.id)
        inside: list[ast.AST] = [*node.handlers, *node.orelse] if isinstance(node, ast.Try) else []
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += inside if isinstance(node, ast.Try) else ast.iter_child_nodes(node)
    return {e for e in found if e[0].isupper() and e not in PYTHONS}


def main(folders: list[str]) -> None:
    """Print them, and how many there are in each folder."""
    for folder in folders or FOLDERS:
        for found, what in ((undocumented(folder), "undocumented"), (unsaid_errors(folder), "unsaid errors")):
            print(*found, f"{len(found)} {what} in {folder}\n", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
