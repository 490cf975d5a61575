"""Numbers without a name in programs, recognition and strategies: `python -m tests.unnamed_numbers [FOLDER ...]`.

A number in a strategy is either a fact about a machine (`polyc.poly.target`, target files), a price or bound that
somebody measured or chose (`scheduler/cost/`), or a budget (`polyc.poly.budgets`). -1, 0, 1 and 2 count as grammar:
the last, none, the first, half. Numbers of the cost model stand under a name with a reason beside it, so those inside
its functions are counted, too. `tests/test_unnamed_numbers.py` holds both counts.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DECIDING = ("scheduler/programs", "scheduler/strategies")
PRICING = "scheduler/cost"
GRAMMAR = (-1, 0, 1, 2)


def literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """The numbers of a piece of program that are no grammar."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in GRAMMAR:
            yield node


def in_functions(tree: ast.Module) -> Iterator[ast.Constant]:
    """Those inside of functions, and so without a name."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {id(n): n for f in ast.walk(tree) if isinstance(f, functions) for n in literals(f)}
    yield from found.values()


def counted(folder: str) -> Counter[str]:
    """How many there are in each file of a folder; of the cost model those without a name."""
    find = in_functions if folder == PRICING else literals
    found: Counter[str] = Counter()
    for path in sorted((ROOT / folder).rglob("*.py")):
        if count := sum(1 for _ in find(ast.parse(path.read_text(encoding="utf-8")))):
            found[str(path.relative_to(ROOT))] = count
    return found


def main(folders: list[str]) -> None:
    """Print a table."""
    for folder in folders or [*DECIDING, PRICING]:
        found = counted(folder)
        for name, count in found.most_common():
            print(f"{count:5}  {name}")
        print(f"{found.total():5}  in all of {folder}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
