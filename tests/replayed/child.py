"""The new process: `python -m tests.replayed.child FOLDER` runs every program that lies in the folder.

`NAME.py` is what `Schedule.program` printed, `NAME.scop` the exact text of the Scop that it begins with. Written are
`NAME.json`, the tree that comes of it, and `NAME.after`, its Scop; `NAME.error` instead where the program is refused.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from polyc.poly.errors import PolycError
from polyc.poly.json_io import dump_tree
from polyc.poly.scop import Scop
from polyc.poly.texts.parser import parse_scop
from polyc.poly.texts.printer import exact_scop
from polyc.scheduler.schedule import Schedule


class Operator:
    """What a program calls `op`: of an operator it needs the schedule of its Scop."""

    def __init__(self, scop: Scop) -> None:
        self._scop = scop

    def scop(self) -> Operator:
        """As the operator's method does: what has a `schedule()`."""
        return self

    def schedule(self) -> Schedule:
        """The program order, with the marks of the program itself."""
        return Schedule.of(self._scop)


def run(program: Path) -> None:
    """Run one program and write what comes of it."""
    try:
        space: dict[str, Any] = {"op": Operator(parse_scop(program.with_suffix(".scop").read_text(encoding="utf-8")))}
        exec(compile(program.read_text(encoding="utf-8"), program.name, "exec"), space)
    except PolycError as error:
        program.with_suffix(".error").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        return
    program.with_suffix(".json").write_text(dump_tree(space["s"].tree), encoding="utf-8")
    program.with_suffix(".after").write_text(exact_scop(space["s"].scop), encoding="utf-8")


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.py")):
        run(path)
