"""`polyc build FILE.py:OP -o DIR`: an operator as files that need neither Python nor polyc."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from polyc.graph_driver.cli.inspect import DIGITS, UsageError, is_operator, load_operator, parse_numbers, parse_sizes
from polyc.poly.errors import ArgumentError


def build_command(arguments: argparse.Namespace) -> int:
    """Write the files; print their names, or `--json`.

    Raises:
        UsageError: no operator, an unknown kind of file, or sizes and constants that do not fit.
    """
    from polyc.graph_driver.artifacts.operator_files import build_operator, kinds_of

    what: str = arguments.what
    if not is_operator(what):
        raise UsageError(
            f"polyc build takes an operator (FILE.py:OP), not {what}: a model is compiled by polyc compile"
        )
    try:
        kinds = kinds_of(arguments.emit)
    except ArgumentError as error:
        raise UsageError(f"--emit: {error}") from None
    op = load_operator(what)
    sizes, constants, shapes = _given(op, arguments)
    try:
        scop = op.scop(**constants, **shapes)
    except ArgumentError as error:
        raise UsageError(f"{error} (on the command line: --const NAME=V, --shape NAME=N,N)") from None
    for name in sizes:
        if name not in scop.params:
            raise UsageError(f"{scop.name} has no size '{name}' (it has {', '.join(scop.params) or 'none'})")
    schedule = None if arguments.schedule is None else _schedule(scop, arguments.schedule)
    built = build_operator(
        scop, arguments.output or Path(f"{op.name}_build"), kinds, sizes, target=arguments.target, schedule=schedule,
        threads=arguments.threads, name=arguments.name, usage=op.usage, checks=False if arguments.no_checks else None,
    )  # fmt: skip
    files = {kind: str(path) for kind, path in built.files.items()}
    if arguments.json:
        print(json.dumps({"files": files, "name": built.name, "notes": built.notes, "prototype": built.prototype},
                         indent=2, sort_keys=True))  # fmt: skip
    else:
        print(f"{built.prototype};")
        for path in files.values():
            print(f"wrote  {path}")
    return 0


def _given(op: Any, arguments: argparse.Namespace) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    """Sizes, compile-time constants and shapes that the command line gives, by the names of the operator."""
    sizes, constants = parse_sizes(arguments.size), parse_numbers(arguments.const)
    for name in constants:
        if name not in op.signature.constants:
            has = ", ".join(op.signature.constants) or "none"
            raise UsageError(f"{op.name} has no compile-time constant '{name}' (it has {has})")
    shapes: dict[str, Any] = {}
    for pair in arguments.shape:
        name, _, text = pair.partition("=")
        extents = [t.strip() for t in text.split(",") if t.strip()]
        if not name or not all(map(DIGITS.fullmatch, extents)):
            raise UsageError(f"expected --shape NAME=N,N,..., got '{pair}'")
        if name not in {p.name for p in op.signature.params if p.shape is not None}:
            raise UsageError(f"{op.name} has no array '{name}'")
        shapes[name] = tuple(map(int, extents))
    return sizes, constants, shapes


def _schedule(scop: Any, file: Path) -> Any:
    from polyc.graph_driver.cli.inspect import operator_schedule

    return operator_schedule(scop, None, {}, file)
