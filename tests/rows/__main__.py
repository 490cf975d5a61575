"""`python -m tests.rows`: every row of the mission, the tests that show it run, and what was seen.

    python -m tests.rows                    # all rows, without what is marked as long
    python -m tests.rows --long             # with it
    python -m tests.rows A4 G T7            # some rows, or all of a section
    python -m tests.rows --list             # what each row claims; nothing runs
    python -m tests.rows --page docs/rows.md

A row counts as shown when each of its tests ran and passed and nothing of its statement is missing. What was skipped is
not shown. Exit code 1 when a test of a row failed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.rows.page import page
from tests.rows.running import run, seen
from tests.rows.table import NOT, PART, WHOLE, Row, rows


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.rows", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("row", nargs="*", help="rows or sections by name (default: all)")
    parser.add_argument("--long", action="store_true", help="run what is marked as long, too")
    parser.add_argument("--list", action="store_true", help="only print what each row claims")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="tests that run at the same time (2)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write all rows as a page; nothing runs")
    given = parser.parse_args()
    if given.page:
        given.page.write_text(page(rows().values()), encoding="utf-8")
        return 0
    chosen = named(given.row, rows(), parser)
    if given.list:
        for r in chosen:
            print(line(r, r.state, f"{len(r.tests)} tests"))
        return summary([r.state for r in chosen])
    outcomes = run((n for r in chosen for n in r.tests), given.long, given.jobs) if any(r.tests for r in chosen) else {}
    states = []
    for r in chosen:
        state, total = seen(r, outcomes)
        states.append(state)
        print(line(r, state, f"{total}, {total.seconds:.0f} s" if r.tests else ""))
    summary(states)
    return int(any(o.failed for o in outcomes.values()))


def named(asked: Iterable[str], every: Mapping[str, Row], parser: argparse.ArgumentParser) -> list[Row]:
    """The rows of these names; a letter is a section. Ends the program at a name that there is not."""
    wanted = list(asked)
    for name in wanted:
        if name not in every and not any(r.rstrip("0123456789") == name for r in every):
            parser.error(f"there is no row or section '{name}'")
    return [r for n, r in every.items() if not wanted or n in wanted or n.rstrip("0123456789") in wanted]


def line(row: Row, state: str, what: str) -> str:
    """A row as it is printed: its state, what ran, and what is missing."""
    missing = f"; missing: {row.missing}" if row.missing else ""
    return f"{row.name:4} {state:9} {row.item} ({what or 'no tests'}{missing})"


def summary(states: Iterable[str]) -> int:
    """Print how many rows have each state; 0."""
    counts = Counter(states)
    print(", ".join(f"{counts[s]} {s}" for s in (WHOLE, PART, NOT)) + f" of {counts.total()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
