"""The rooms of a package, the arrows between them and the circles of its modules: `python tests/floors.py PACKAGE`.

A room is a folder of the package, or a module that lies directly in it. An arrow goes from the room that imports to
the one that is imported. Every import counts, wherever it stands: in a function, under `TYPE_CHECKING`, or as a
text that is the name of a module (`"polyc.graph_driver.worker"`, also with `:name` behind it).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Graph = Mapping[str, set[str]]


def modules(package: str) -> dict[str, Path]:
    """The files of a package by module, as `fusion.groups`; the package's own `__init__.py` is ``."""
    folder = ROOT / package
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(package: str) -> dict[str, set[str]]:
    """For each module of a package those of the same package that it imports."""
    known = modules(package)
    return {
        name: {m for wanted in _wanted(path, f"polyc.{package}") if (m := _module(wanted, known)) != name}
        for name, path in known.items()
    }


def _wanted(path: Path, prefix: str) -> Iterator[str]:
    """What a file imports below `prefix`, without it: modules, or names in modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: an import by place"
            names = [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value.replace(":", ".")] if re.fullmatch(r"polyc(\.\w+)+(:[\w.]+)?", node.value) else []
        yield from (n.removeprefix(prefix).removeprefix(".") for n in names if f"{n}.".startswith(f"{prefix}."))


def _module(wanted: str, known: Mapping[str, Path]) -> str:
    """The longest start of a dotted name that is a module."""
    while wanted and wanted not in known:
        wanted = wanted.rpartition(".")[0]
    return wanted


def room(module: str) -> str:
    """The room that a module is in."""
    return module.partition(".")[0]


def arrows(found: Graph) -> dict[tuple[str, str], list[str]]:
    """The arrows between rooms, each with the imports that it stands for (`fusion.groups -> graph.ir`)."""
    out: dict[tuple[str, str], list[str]] = {}
    for name, wanted in found.items():
        for other in sorted(wanted):
            if room(name) != room(other):
                out.setdefault((room(name), room(other)), []).append(f"{name} -> {other}")
    return out


def circles(found: Graph) -> list[list[str]]:
    """Modules that import each other, directly or not: the strongly connected components of more than one."""
    reached = {name: _reached(found, name) for name in found}
    out: list[list[str]] = []
    for name in found:
        together = sorted(other for other in reached[name] if name in reached[other])
        if len(together) > 1 and together not in out:
            out.append(together)
    return out


def _reached(found: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        for other in found[left.pop()] - seen:
            seen.add(other)
            left.append(other)
    return seen


def main(package: str) -> None:
    """Print rooms, arrows and circles of a package."""
    found = imports(package)
    between = arrows(found)
    print(f"{len(found)} modules, {len({room(m) for m in found})} rooms, {len(between)} arrows between rooms")
    for (start, end), those in sorted(between.items()):
        print(f"  {start} -> {end}: {len(those)}")
    for circle in circles(found):
        print(f"circle of {len(circle)}: {', '.join(circle)}")


if __name__ == "__main__":
    main(sys.argv[1])
