"""Bugs seeded in generated loops: the proof catches all that a run shows to be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loop_mutants import mutants
from mutant_oracle import fault
from proof_cases import by_hand, case, matmul, of_random_programs, real, seidel, stencil
from seeded_bugs import Tally, all_cases, judge, judged

from polyc.scheduler.schedule import Schedule

# What must be among the bugs; "buffer hoisted" and "vector mark" are rarely wrong in effect.
KINDS = {
    "array subscript", "bound", "copy bound", "copy dropped", "extent", "guard changed", "guard dropped",
    "loops swapped", "instance claimed", "instance shifted", "operator", "parallel mark", "promoted offset",
    "statement dropped", "statement repeated", "statements swapped", "step",
}  # fmt: skip


def report(tally: Tally) -> str:
    return "\n".join([str(tally), *(f"{c.name}: {m.kind}, {m.what}: {why}" for c, m, why in tally.missed)])


def test_two_hundred_seeded_bugs_are_caught() -> None:
    tally = judged(by_hand(), mutants_each=31, wanted=200)
    assert tally.wrong == 200 and not tally.missed, report(tally)
    assert set(tally.caught) >= KINDS, report(tally)


def test_seeded_bugs_in_random_programs_are_caught() -> None:
    tally = judged(of_random_programs(range(50)), mutants_each=6, wanted=15)
    assert tally.wrong == 15 and not tally.missed, report(tally)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_thousands_of_seeded_bugs_are_caught(seed: int) -> None:
    tally = judged(all_cases(1000 * seed), mutants_each=15, wanted=500, seed=seed)
    assert tally.wrong == 500 and not tally.missed, report(tally)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_two_bugs_do_not_hide_each_other(seed: int) -> None:
    tally = judged(all_cases(1000 * seed), mutants_each=15, wanted=300, seed=seed, changes=2)
    assert tally.wrong == 300 and not tally.missed, report(tally)


def test_the_oracle_finds_nothing_in_unchanged_loops() -> None:
    for c in by_hand():
        assert fault(c, c.fn, marks=True) is None, c.name


@pytest.mark.parametrize(
    "operator, kind, what, wrong",
    [
        (matmul, "loops swapped", "i and j", False),
        (matmul, "statements swapped", "0 and 1", True),
        (matmul, "parallel mark", "i", False),
        (matmul, "parallel mark", "k", True),
        (stencil, "statements swapped", "0 and 1", True),
        (stencil, "vector mark", "i", False),
        (seidel, "vector mark", "i", True),
        (seidel, "loops swapped", "t and i", True),
    ],
)
def test_the_oracle_and_the_proof_judge_known_changes(operator: Any, kind: str, what: str, wrong: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = [(5, 7), (7, 6)] if operator is matmul else [(9,)] * len(operator.signature.params)
    c = case("", operator, Schedule.start(operator.scop()), [[real(rng, *n) for n in shapes]], exact=False)
    mutant = next(m for m in mutants(c.fn) if (m.kind, m.what) == (kind, what))
    tally = Tally()
    judge(c, mutant, tally)
    assert (tally.caught.total(), tally.accepted.total()) == ((1, 0) if wrong else (0, 1)), report(tally)
