"""`python -m tests.rows`: every row of the mission, the tests that show it run, and what was seen.

    python -m tests.rows                    # all rows, without what is marked as long and what is measured
    python -m tests.rows --long             # with both; what is measured wants a machine with nothing beside
    python -m tests.rows A4 G T7            # some rows, or all of a section
    python -m tests.rows --list             # what each row claims; nothing runs
    python -m tests.rows --page docs/rows.md

A row counts as shown when each of its tests and measurements ran and passed and nothing of its statement is missing.
What was skipped is not shown. Exit code 1 when a test of a row failed, or a measurement that the row says is borne out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.rows.page import page
from tests.rows.running import Outcome, run, seen
from tests.rows.table import NOT, PART, WHOLE, Row, rows


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.rows", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("row", nargs="*", help="rows or sections by name (default: all)")
    parser.add_argument("--long", action="store_true", help="run what is marked as long, too, and measure")
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
            print(line(r, r.state, f"{len(r.tests)} tests, {len(r.measured)} measured"))
        return summary([r.state for r in chosen])
    outcomes = run(chosen, given.long, given.jobs)
    states, refuted = [], False
    for r in chosen:
        state, total = seen(r, outcomes)
        states.append(state)
        refuted |= any(outcomes[n].failed for n in (r.tests if r.missing else r.evidence) if n in outcomes)
        print(line(r, state, what_ran(r, total, given.long)))
    summary(states)
    return int(refuted)


def what_ran(row: Row, total: Outcome, long: bool) -> str:
    """The outcomes of a row in words, with what was measured."""
    if not row.evidence:
        return ""
    parts = [f"{total}, {total.seconds:.0f} s", *total.figures]
    return "; ".join(parts if long or not row.measured else [*parts, f"{len(row.measured)} to measure with --long"])


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
