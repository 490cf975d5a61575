"""The gauntlet: polyc's answers are the expected ones, and brute force confirms every expected one."""

from __future__ import annotations

import contextlib
import io

import pytest
from gauntlet import brute, suite

NAMES = suite.names()


def test_there_are_enough_cases() -> None:
    verdicts = [suite.load(n)["expect"]["verdict"] for n in NAMES]
    assert len(NAMES) >= 38 and verdicts.count("accept") >= 15 and verdicts.count("refuse") >= 15


@pytest.mark.parametrize("name", NAMES)
def test_polyc_gives_the_expected_answer(name: str) -> None:
    case = suite.load(name)
    expect, got = case["expect"], suite.answer(case)
    assert got.verdict == expect["verdict"]
    if got.error is not None:
        assert str(got.error.legal_if) == expect["legal_if"]
        assert suite.witness_of(got.error) == expect["witness"]
        scope: dict = {"__name__": "gauntlet"}
        exec(got.error.witness.script(), scope)
        with contextlib.redirect_stdout(io.StringIO()):
            assert scope["main"]() == 0  # the two values differ


def confirm(name: str, upto: int) -> None:
    """The expected answer against brute force for all sizes up to `upto`."""
    case = suite.load(name)
    expect = case["expect"]
    condition = expect.get("legal_if", "always")
    smallest = None
    for sizes in suite.all_sizes(case, upto):
        found = brute.broken(case, sizes)
        if case.get("exact", True):
            assert suite.legal(condition, sizes) == (not found), sizes
        else:
            assert not (suite.legal(condition, sizes) and found), sizes
        if found and smallest is None:
            smallest = sizes, found
    assert (smallest is None) == (expect["verdict"] == "accept")
    if smallest is not None:
        sizes, found = smallest
        assert sizes == expect["witness"]["sizes"]
        pairs = [(suite.instance_text(b.source), suite.instance_text(b.sink), suite.instance_text(b.cell), b.kind)
                 for b in found]  # fmt: skip
        if case.get("exact", True):
            assert tuple(expect["witness"][k] for k in ("source", "sink", "element", "kind")) in pairs


@pytest.mark.parametrize("name", NAMES)
def test_brute_force_confirms_the_expected_answer(name: str) -> None:
    confirm(name, 6)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_brute_force_confirms_all_sizes_up_to_twelve(name: str) -> None:
    confirm(name, 12)
