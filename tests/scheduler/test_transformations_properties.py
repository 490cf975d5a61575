"""Every transformation on random programs: accepted means equal results, refused means really wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import back_ends
import brute_order
import pytest
import symbolic
from differential import exact_when_reordered, oracle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_tree import Program
from random_programs import generate
from random_schedules import PROPOSALS, apply
from static_programs import program, with_locals, with_sums

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.scheduler.schedule import STEPS, Schedule
from polyc.scheduler.transformations import inlining, rfactoring

SEEDS = st.integers(0, 10**6)
QUICK = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
THOROUGH = settings(QUICK, max_examples=80)
OTHERS = {
    "promote",
    "contract",
    "inline",
    "outline",
    "split_sum",
    "expand",
    "coalesce",
    "split_statement",
    "unite_statements",
    "gather",
    "read_first",
    "rfactor",
    "eliminate",
    "normalise",
    "in_words",
    "relayout",
    "recompute",
}
ALIKE = {"unite_statements", "split_sum", "coalesce", "in_words"}
"""No random program has two statements that compute the same (`test_eliminations.py`) or products of narrow integers
(`test_products_of_words.py`), few add up sums of products (`test_outlining.py`) or copy elements into a local array and
back (`test_coalescing.py`)."""
ORDER = sorted(STEPS - OTHERS)  # steps that only move instances


def test_all_are_tested() -> None:
    assert set(PROPOSALS) == STEPS


# ---- accepted: equal results -------------------------------------------------------------------


def accepted(name: str, seed: int, tries: int = 12) -> Iterator[tuple[Program, Schedule]]:
    """The first acceptance of the transformation, on random programs after a few other steps."""
    r = random.Random(seed)
    for _ in range(tries):
        p = generate(r.randrange(10**6))
        if p.inexact:
            continue
        free = exact_when_reordered(p, oracle(p.operator(), p.arguments()))
        s = replace(Schedule.start(p.operator(reassociate=free).scop()), terse=True)
        for step in [*r.choices(list(PROPOSALS), k=r.randint(0, 2)), *[name] * 4]:
            try:
                s = apply(s, step, PROPOSALS[step](s, r)) if s.loops else s
            except ScheduleError:
                continue
        if any(step.name == name for step in s.trace):
            yield p, s
            return


def check_accepted(name: str, seed: int) -> None:
    for p, s in accepted(name, seed):
        args = p.arguments()
        expected = oracle(p.operator(), args)
        got = back_ends.interpret(s.scop, s.tree, args, shuffle=seed)
        assert not back_ends.difference(got, expected, signs=not s.scop.reassociate), f"{p.source}\n{s.save()}\n{s}"
        again = Schedule.replay(s.original, s.save())
        assert again.save() == s.save() and str(again) == str(s)


@pytest.mark.parametrize("name", sorted(STEPS))
@given(seed=SEEDS)
@QUICK
def test_accepted_schedules_give_equal_results(name: str, seed: int) -> None:
    check_accepted(name, seed)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(STEPS))
@given(seed=SEEDS)
@THOROUGH
def test_accepted_schedules_give_equal_results_at_length(name: str, seed: int) -> None:
    check_accepted(name, seed)


@pytest.mark.parametrize("name", sorted(STEPS - ALIKE))
def test_acceptances_occur(name: str) -> None:
    assert any(list(accepted(name, seed)) for seed in range(12))


# ---- refused: really wrong ---------------------------------------------------------------------


def check_order(name: str, seed: int) -> set[bool]:
    """Verdicts of one transformation on a small program, compared with the enumeration of all pairs."""
    r = random.Random(seed)
    scop = program(r)
    pairs = brute_order.conflicts(scop)
    verdicts = set()
    for _ in range(3):
        s = replace(Schedule.start(scop), _deferred=True)
        for step in [*r.choices(ORDER, k=r.randint(0, 1)), name]:
            try:
                s = apply(s, step, PROPOSALS[step](s, r))
            except ScheduleError:
                continue
        if not s.trace:
            continue
        verdict = True
        try:
            replace(s, _deferred=False)._verify(lambda: "proposal", "all", None)
        except IllegalSchedule:
            verdict = False
        assert verdict == brute_order.legal(scop, s.tree, pairs), f"{s.save()}\n{scop}\n{s}"
        verdicts.add(verdict)
    return verdicts


@pytest.mark.parametrize("name", ORDER)
@given(seed=SEEDS)
@QUICK
def test_order_is_accepted_exactly_when_no_pair_is_violated(name: str, seed: int) -> None:
    check_order(name, seed)


@pytest.mark.long
@pytest.mark.parametrize("name", ORDER)
@given(seed=SEEDS)
@THOROUGH
def test_order_is_accepted_exactly_when_no_pair_is_violated_at_length(name: str, seed: int) -> None:
    check_order(name, seed)


KEEP_THE_ORDER = {"split", "strip_mine", "unsplit", "unroll", "serial", "index_split", "peel", "version"}


@pytest.mark.parametrize("name", sorted(set(ORDER) - KEEP_THE_ORDER))
def test_refusals_occur(name: str) -> None:
    assert any(False in check_order(name, seed) for seed in range(40))


def check_inline(seed: int) -> bool | None:
    """The verdict on a random program: the stored values of what remains are the same, or they are not."""
    scop = with_locals(random.Random(seed))
    try:
        done = inlining.inline(scop, "t")
    except ScheduleError:
        return None
    before, after = symbolic.run(scop, scop.tree), symbolic.run(done.scop, done.scop.tree)
    same = all(before.stores[x] == value for x, value in after.stores.items())
    assert same == (done.violation is None), f"{scop}\n{done.scop}\n{done.violation}"
    return same


def check_rfactor(seed: int) -> bool | None:
    """The same for two stages of a sum, over a random loop of a random legal order."""
    r = random.Random(seed)
    scop = with_sums(r)
    s = Schedule.start(scop)
    for step in r.choices(ORDER, k=r.randint(0, 2)):
        try:
            s = apply(s, step, PROPOSALS[step](s, r))
        except ScheduleError:
            continue
    try:
        done = rfactoring.rfactor(s.scop, s.tree, r.choice(s.loops))
    except ScheduleError:
        return None
    before, after = symbolic.run(scop, scop.tree), symbolic.run(done.scop, done.tree)
    sums = {n for n, x in scop.statements.items() if x.reduction}
    same = all(value == after.stores[x] for x, value in before.stores.items() if x.stmt not in sums)
    same = same and all(after.memory[at] == value for at, value in before.memory.items())
    assert same == (done.violation is None), f"{scop}\n{s}\n{done.scop}\n{done.tree}\n{done.violation}"
    if done.violation is None:
        program = symbolic.run(done.scop, done.scop.tree)
        assert program.memory == after.memory
    return same


@given(seed=SEEDS)
@settings(QUICK, max_examples=15)
def test_inline_is_refused_exactly_when_a_value_would_change(seed: int) -> None:
    check_inline(seed)


@given(seed=SEEDS)
@settings(QUICK, max_examples=15)
def test_rfactor_is_refused_exactly_when_a_result_would_change(seed: int) -> None:
    check_rfactor(seed)


def test_both_verdicts_occur() -> None:
    for check in (check_inline, check_rfactor):
        assert {check(seed) for seed in range(15)} >= {True, False}, check


@pytest.mark.long
@given(seed=SEEDS)
@settings(QUICK, max_examples=2000)
def test_inline_and_rfactor_at_length(seed: int) -> None:
    check_inline(seed)
    check_rfactor(seed)
