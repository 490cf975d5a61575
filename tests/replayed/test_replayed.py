"""A slice of automatic schedules made again in a new process, and what the comparison sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from polyc.scheduler.schedule import Schedule, Step
from tests.goldens.comparing import subjects
from tests.goldens.store import sliced
from tests.goldens.subjects import Subject, library
from tests.replayed import __main__ as command
from tests.replayed import comparing
from tests.replayed.comparing import Replayed, not_public, replayed

PAGE = Path(__file__).with_name("results.md")


@pytest.mark.parametrize("target", command.MACHINES)
@pytest.mark.parametrize("family", ["library", "polybench", "networks"])
def test_the_slice_of_the_goldens_is_made_again(family: str, target: str) -> None:
    """Their names are chosen by hashes; of the networks one is imported."""
    chosen = set(sliced(family, target))
    pattern = "|".join({f"^{name.split('/')[0]}$" for name in chosen}) if family == "networks" else ""
    found = replayed((s for s in subjects(family, target, pattern) if s.name in chosen), target)
    assert found.failures == []
    assert found.programs + found.refused == len(chosen) and found.steps.total() > found.programs


def product() -> Subject:
    """A product of matrices."""
    return next(s for s in library() if s.name == "matmul/odd")


def test_what_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule beside the text of another one, one whose text is refused, one that no text makes."""

    def changed(text: str) -> list[str]:
        monkeypatch.setattr(Schedule, "program", lambda _, __: text)
        return replayed([product()], "x86-64-v3").failures

    start = "s = op.scop().schedule()\n"
    assert changed(start) == ["matmul/odd: another tree"]
    (refused,) = changed(f'{start}s = s.split("nowhere", 4)\n')
    assert refused.startswith("matmul/odd: the program is refused: ScheduleError: ")
    ended, not_run = changed("raise SystemExit(3)\n")
    assert ended.startswith("the new process: ") and not_run == "matmul/odd: the program was not run"


def test_a_scop_that_steps_replace_is_compared() -> None:
    scop = product().scop()
    s = Schedule.of(scop)
    found = Replayed()
    monkey = replace(s, scop=replace(scop, name="other"), _original=scop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparing, "automatic", lambda *_: monkey)
        found = replayed([product()], "x86-64-v3")
    assert found.failures == ["matmul/odd: another Scop"]


def test_steps_that_are_not_public() -> None:
    s = Schedule.of(product().scop())
    assert list(not_public(s.split("i", 4))) == []
    assert list(not_public(s.set_order(s.tree))) == ["set_order gives a whole tree"]
    assert list(not_public(replace(s, trace=(Step("_step", {}), Step("nothing", {}))))) == [
        "_step is no public step", "nothing is no public step"
    ]  # fmt: skip


def test_the_page_keeps_a_line_of_each_part(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first = command.row("library", "sm_80", Replayed(programs=1))
    for line in (first, command.row("library", "x86-64-v3", Replayed()), command.row("library", "sm_80", Replayed(2))):
        command.keep(page, line)
    kept = page.read_text(encoding="utf-8")
    assert kept.startswith(command.TITLE + command.HEAD) and first not in kept
    assert [line.split("|")[2:4] for line in kept.splitlines()[-2:]] == [[" sm_80 ", " 2 "], [" x86-64-v3 ", " 0 "]]


def test_nothing_on_the_page_has_failed() -> None:
    rows = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 4 and {row[-3].strip() for row in rows} == {"0"}
