"""A slice of the campaign of changed programs (`tests/changed_programs.py`), and its page."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from changed_programs import PAGE, RESULTS, changed, check, numbers, other

from polyc.poly import legality
from polyc.scheduler.schedule import Step

FIRST = 100_000
SLICE = 12


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SLICE))
def test_a_changed_program_is_right_or_refused(seed: int) -> None:
    found = check(seed)
    assert found.kind != "wrong", found.text


def test_what_legality_lets_pass_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is not legality: the proof of the loops and the results see what it misses."""
    assert check(14).kind == "refused"
    monkeypatch.setattr(legality, "first_violation", lambda *_: None)
    assert check(14).kind == "wrong"


def test_other_numbers() -> None:
    trace = (Step("split", {"loop": "i", "size": 8}), Step("promote", {"layout": [[0, 1, 0]], "copy_in": False}))
    assert [p for s in trace for p in numbers(s.args)] == [
        ("size",), ("layout", 0, 0), ("layout", 0, 1), ("layout", 0, 2), ("copy_in",)
    ]  # fmt: skip
    for seed in range(50):
        assert changed(trace, random.Random(seed)) != list(trace)
        assert other(8, random.Random(seed)) != 8 and other(False, random.Random(seed)) is True
    assert trace[1].args == {"layout": [[0, 1, 0]], "copy_in": False}


def test_the_page_has_a_thousand() -> None:
    blocks, _ = PAGE.read(Path(RESULTS))
    assert sum(b.size for b in blocks) >= 1000
