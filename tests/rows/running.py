"""The tests behind rows, run once each: one session of pytest, and one for those that time something."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.rows.table import NOT, PART, WHOLE, Row

ROOT = Path(__file__).parents[2]
FIGURE = "figure"
"""The property of a test (`record_property`) that says what it measured."""


@dataclass
class Outcome:
    """How many cases of a test passed, failed, were skipped; their seconds, and the figures that they recorded."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    figures: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Those of another one."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.seconds += other.seconds
        self.figures += other.figures

    def __str__(self) -> str:
        parts = [f"{n} {word}" for n, word in ((self.passed, "passed"), (self.failed, "failed")) if n]
        return ", ".join([*parts, *([f"{self.skipped} skipped"] if self.skipped else [])]) or "nothing ran"


def run(rows: Iterable[Row], long: bool, processes: int) -> dict[str, Outcome]:
    """What each test of these rows did (by pytest's name below `tests/`, without parameters).

    Args:
        long: whether the cases that are marked as long run, and what is measured. These are one after another, when
            the others have ended, so that nothing of this run is beside them.
        processes: how many other tests run at the same time.
    """
    chosen = list(rows)
    tests = sorted({n for r in chosen for n in r.tests})
    outcomes = session(tests, "not bench" if long else "not bench and not long", processes)
    if long:
        outcomes |= session(sorted({n for r in chosen for n in r.measured}), "bench", 0)
    return outcomes


def session(names: Sequence[str], marks: str, processes: int) -> dict[str, Outcome]:
    """The outcomes of these tests, of the cases that the expression of pytest's marks selects."""
    if not names:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += ["-n", str(processes), "-m", marks, *(f"tests/{n}" for n in names)]
        subprocess.run(command, cwd=ROOT, check=False)
        if not report.is_file():
            raise SystemExit("pytest ended without a report")
        return read(report, names)


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
        figures = [p.get("value") or "" for p in case.iter("property") if p.get("name") == FIGURE]
        found[name].add(Outcome(int(not (bad or left)), int(bad), int(left), float(case.get("time") or 0), figures))
    return found


def seen(row: Row, outcomes: Mapping[str, Outcome]) -> tuple[str, Outcome]:
    """The state that a run bears out, and the sum of its outcomes.

    Every test and every measurement must have passed at least once. A measurement that failed, or has not run, leaves
    the row in part: what its tests show stands.
    """
    total = Outcome()
    for name in row.evidence:
        total.add(outcomes.get(name, Outcome()))
    if not total.passed or any(outcomes[n].failed for n in row.tests if n in outcomes):
        return NOT, total
    whole = all(n in outcomes and outcomes[n].passed and not outcomes[n].failed for n in row.evidence)
    return (WHOLE if whole and not row.missing else PART), total
