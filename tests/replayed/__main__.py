"""`python -m tests.replayed`: is every automatic schedule what its program of public steps says?

    python -m tests.replayed                                      # all families on both machines
    python -m tests.replayed --family library --target sm_80      # a part
    python -m tests.replayed --family networks --match squeezenet # programs, or networks, by name
    python -m tests.replayed --page tests/replayed/results.md     # the figures there, beside those of other families

For every program of the goldens (`tests/goldens/subjects.py`) the strategies make a schedule. The Scop is written as
exact text and the schedule as `Schedule.program` prints it; a new process runs the program on the Scop read back. Its
tree and its Scop must be the strategies', byte by byte; every step must be a public method with a docstring and a
section in `docs/schedules.md`, and none may give a whole tree. Exit code 1 where one of this fails.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.goldens.comparing import FAMILIES, subjects
from tests.goldens.frozen import TARGETS
from tests.goldens.subjects import networks
from tests.replayed.comparing import Replayed, replayed

MACHINES = ("x86-64-v3", "sm_80")
TITLE = """# Automatic schedules from their texts

Made by `python -m tests.replayed --page tests/replayed/results.md`. Each schedule that the strategies make is printed
as a program of public steps and its Scop as exact text; a new process makes the schedule of these two, and tree and
Scop are the same, byte by byte, or it is a failure. A step that is no documented method, or that gives a whole tree, is
one, too. `none`: the strategies refuse the program. Networks are named by their files; a group that a network has
several times counts once. Seconds are the processor's: of the strategies, and of the new processes with start and
reading.

"""
HEAD = "| programs of | machine | programs | none | steps | most | kinds | s, made | s, again | failures | commit |"
RULE = f"| --- | --- |{' ---: |' * 8} --- |"


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.replayed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--target", choices=TARGETS, action="append", help=f"default: {' and '.join(MACHINES)}")
    parser.add_argument(
        "--match", default="", help="regular expression: only programs (networks) whose name it matches"
    )
    parser.add_argument("--page", type=Path, help="keep the figures in this page")
    given = parser.parse_args()
    if given.page and given.match and given.family != ["networks"]:
        parser.error("--page keeps figures of whole families: --match goes with it for networks alone")
    failures = []
    for family in given.family or FAMILIES:
        for target in given.target or MACHINES:
            for what, of in parts(family, given.match):
                found = replayed(subjects(family, target, of), target)
                failures += [f"{family} {target} {failure}" for failure in found.failures]
                line = row(what, target, found)
                print(line, flush=True)
                if given.page:
                    keep(given.page, line)
    print(*failures, sep="\n")
    return 1 if failures else 0


def parts(family: str, pattern: str) -> list[tuple[str, str]]:
    """The rows that a family has, each with the pattern of its programs: every network has its own."""
    if family != "networks":
        return [(family, pattern)]
    return [(p.stem, f"^{re.escape(p.stem)}$") for p in networks() if re.search(pattern, p.stem)]


def row(what: str, target: str, found: Replayed) -> str:
    """The figures as a line of the page's table."""
    counts = (found.programs, found.refused, found.steps.total(), found.longest, len(found.steps))
    cells = (what, target, *counts, f"{found.made:.0f}", f"{found.again:.0f}", len(found.failures), commit())
    return f"| {' | '.join(map(str, cells))} |"


@cache
def commit() -> str:
    """What ran: the commit of this checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def keep(page: Path, line: str) -> None:
    """The line in the page's table, in place of one of the same programs and machine."""
    text = page.read_text(encoding="utf-8") if page.exists() else f"{TITLE}{HEAD}\n{RULE}\n"
    start = "|".join(line.split("|")[:3]) + "|"
    lines = text.splitlines()
    same = [k for k, old in enumerate(lines) if old.startswith(start)]
    lines[same[0] if same else len(lines) :] = [line, *(lines[same[0] + 1 :] if same else [])]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
