"""The tests behind rows, run once each in one session of pytest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.rows.table import NOT, PART, WHOLE, Row

ROOT = Path(__file__).parents[2]


@dataclass
class Outcome:
    """How many cases of a test passed, failed, were skipped, and their seconds."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        """Those of another one."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.seconds += other.seconds

    def __str__(self) -> str:
        parts = [f"{n} {word}" for n, word in ((self.passed, "passed"), (self.failed, "failed")) if n]
        return ", ".join([*parts, *([f"{self.skipped} skipped"] if self.skipped else [])]) or "nothing ran"


def run(names: Iterable[str], long: bool, processes: int) -> dict[str, Outcome]:
    """What each test (pytest's name below `tests/`, without parameters) did.

    Args:
        long: whether the cases that are marked as long run, too.
        processes: how many run at the same time.
    """
    wanted = sorted(set(names))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += ["-n", str(processes), "-m", "" if long else "not long", *(f"tests/{n}" for n in wanted)]
        subprocess.run(command, cwd=ROOT, check=False)
        if not report.is_file():
            raise SystemExit("pytest ended without a report")
        return read(report, wanted)


def read(report: Path, wanted: Iterable[str]) -> dict[str, Outcome]:
    """The outcomes in a report in JUnit's form; a test that it does not name has none."""
    found = {n: Outcome() for n in wanted}
    for case in ET.parse(report).getroot().iter("testcase"):
        place = (case.get("classname") or "").removeprefix("tests.").replace(".", "/")
        name = f"{place}.py::{(case.get('name') or '').partition('[')[0]}"
        if name not in found:
            continue
        kinds = {child.tag for child in case}
        bad, left = bool(kinds & {"failure", "error"}), "skipped" in kinds
        found[name].add(Outcome(int(not (bad or left)), int(bad), int(left), float(case.get("time") or 0)))
    return found


def seen(row: Row, outcomes: dict[str, Outcome]) -> tuple[str, Outcome]:
    """The state that a run bears out, and the sum of its outcomes: every test must have passed at least once."""
    total = Outcome()
    for name in row.tests:
        total.add(outcomes[name])
    if total.failed or not row.tests:
        return NOT, total
    if any(not outcomes[name].passed for name in row.tests):
        return PART if total.passed else NOT, total
    return (PART if row.missing else WHOLE), total
