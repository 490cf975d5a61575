"""Schedules of the strategies beside what a new process makes of their texts, and whether each step is public."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path

from polyc.poly.errors import PolycError
from polyc.poly.json_io import dump_tree
from polyc.poly.texts.printer import exact_scop
from polyc.scheduler.schedule import STEPS, Schedule
from polyc.scheduler.strategies.auto import automatic
from tests.goldens.frozen import machine_of
from tests.goldens.subjects import Subject

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 40
"""Programs that one new process runs."""


@dataclass
class Replayed:
    """What became of a family's programs on a machine. `refused`: the strategies themselves made no schedule.

    `steps`: how often each is in the programs. `longest`: the most of one program. `made`, `again`: seconds of
    processors, of the strategies and of the new processes, start and reading included.
    """

    programs: int = 0
    refused: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    longest: int = 0
    made: float = 0.0
    again: float = 0.0
    failures: list[str] = field(default_factory=list)


def replayed(subjects: Iterable[Subject], target: str) -> Replayed:
    """Every subject's automatic schedule on the target, and the same from its text."""
    found, rest = Replayed(), iter(subjects)
    while some := list(islice(rest, AT_ONCE)):
        schedules = dict(_scheduled(some, target, found))
        with tempfile.TemporaryDirectory() as folder:
            _compare(schedules, Path(folder), found)
    return found


def _scheduled(some: Sequence[Subject], target: str, found: Replayed) -> Iterator[tuple[str, Schedule]]:
    machine, threads = machine_of(target)
    for subject in some:
        scop = subject.scop()
        start = time.process_time()
        try:
            schedule = automatic(scop, machine, threads)
        except PolycError:
            found.refused += 1
            continue
        finally:
            found.made += time.process_time() - start
        yield subject.name, schedule


def _compare(schedules: Mapping[str, Schedule], folder: Path, found: Replayed) -> None:
    """Write the programs, run them in a new process, and hold what it made against the schedules."""
    files = {name: folder / f"{number}.py" for number, name in enumerate(schedules)}
    for name, s in schedules.items():
        files[name].write_text(s.program("op()"), encoding="utf-8")
        files[name].with_suffix(".scop").write_text(exact_scop(s.original), encoding="utf-8")
    before = _seconds_of_children()
    command = [sys.executable, "-m", "tests.replayed.child", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found.again += _seconds_of_children() - before
    if done.returncode:
        found.failures.append(f"the new process: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    for name, s in schedules.items():
        found.programs += 1
        found.steps.update(step.name for step in s.trace)
        found.longest = max(found.longest, len(s.trace))
        found.failures += (f"{name}: {what}" for what in (*not_public(s), *_different(s, files[name])))


def _different(s: Schedule, program: Path) -> Iterator[str]:
    """What the new process made otherwise."""
    error, tree, after = (program.with_suffix(end) for end in (".error", ".json", ".after"))
    if error.exists():
        yield f"the program is refused: {error.read_text(encoding='utf-8').splitlines()[0]}"
    elif not tree.exists():
        yield "the program was not run"
    else:
        if tree.read_text(encoding="utf-8") != dump_tree(s.tree):
            yield "another tree"
        if after.read_text(encoding="utf-8") != exact_scop(s.scop):
            yield "another Scop"


def not_public(s: Schedule) -> Iterator[str]:
    """Steps of a schedule that are no documented public method, or give a whole tree."""
    for name in dict.fromkeys(step.name for step in s.trace):
        method = getattr(Schedule, name, None)
        if name not in STEPS or name.startswith("_") or not (method and method.__doc__):
            yield f"{name} is no public step"
        elif name not in _sections():
            yield f"{name} has no section in docs/schedules.md"
        elif name == "set_order":
            yield "set_order gives a whole tree"


@cache
def _sections() -> frozenset[str]:
    """The steps that the page of schedules shows."""
    text = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^### `(\w+)`$", text, re.MULTILINE))


def _seconds_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system
