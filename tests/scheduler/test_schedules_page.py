"""docs/schedules.md has every transformation, with the trees that the code really makes."""

from __future__ import annotations

from pathlib import Path

import gallery
import pytest

from polyc import programs
from polyc.poly.legality import check
from polyc.scheduler.schedule import STEPS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedules.md"
EXAMPLES = [e for g in gallery.GROUPS for e in g.examples]


PROGRAMS = gallery.PROGRAM_GROUP.examples


def test_every_transformation_has_an_example() -> None:
    assert sorted(e.name for e in EXAMPLES) == sorted(STEPS)
    assert sorted(e.name for e in PROGRAMS) == sorted(programs.__all__)


@pytest.mark.parametrize("example", [*EXAMPLES, *PROGRAMS], ids=[e.name for e in (*EXAMPLES, *PROGRAMS)])
def test_trees_before_and_after(example: gallery.Example) -> None:
    """The section of the page; a difference means: python tests/scheduler/gallery.py > docs/schedules.md"""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index(f"### `{example.name}`\n") :]
    section = section[: section.index("\n##", 4)] if "\n##" in section[4:] else section
    assert section.strip() == "\n".join(gallery.lines(example)).strip()
    done = gallery.after(example)
    check(done.scop, done.tree)
    names = {step.name for step in done.trace}
    assert names <= STEPS and "set_order" not in names - {example.name}
    assert example in PROGRAMS or example.name in names


def test_the_rest_of_the_page() -> None:
    assert PAGE.read_text(encoding="utf-8") == gallery.page()
