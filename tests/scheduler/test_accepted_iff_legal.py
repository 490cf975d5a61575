"""Random programs, random transformations: accepted exactly when enumeration finds no violation."""

from __future__ import annotations

import random
from dataclasses import replace

import brute_order
import pytest
from static_programs import program

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule

PROGRAMS = 60


def steps(s: Schedule, r: random.Random) -> Schedule:
    """One random transformation (its legality not asked for when `s` defers checks)."""
    loops = list(s.loops)
    pick = lambda: r.choice(loops)  # noqa: E731
    k = r.randrange(len(loops))
    run = loops[k : k + r.randint(1, 3)]
    match r.choice(
        "split strip tile interchange permute reverse skew shift reorder fuse distribute parallel vectorize".split()
    ):
        case "split":
            return s.split(pick(), r.randint(2, 3))
        case "strip":
            return s.strip_mine(pick(), r.randint(2, 3))
        case "tile":
            return s.tile(run, [r.randint(2, 3) for _ in run])
        case "interchange":
            return s.interchange(pick(), pick())
        case "permute":
            return s.permute(r.sample(run, len(run)))
        case "reverse":
            return s.reverse(pick())
        case "skew":
            return s.skew(pick(), pick(), r.choice((-1, 1, 2)))
        case "shift":
            return s.shift(pick(), r.choice((-1, 1, 2)), [r.choice(list(s.scop.statements))])
        case "reorder":
            return s.reorder_statements(r.sample(list(s.scop.statements), min(2, len(s.scop.statements))))
        case "fuse":
            return s.fuse(pick(), pick(), shift=r.choice((0, 1)))
        case "distribute":
            return s.distribute(pick())
        case "parallel":
            return s.parallel(pick())
    return s.vectorize(pick(), 4)


def proposals(scop: Scop, r: random.Random) -> list[Schedule]:
    """Unchecked schedules one to three random steps away from program order."""
    out = []
    for _ in range(8):
        s = replace(Schedule.start(scop), _deferred=True)
        for _ in range(r.randint(1, 3)):
            try:
                s = steps(s, r)
            except ScheduleError:
                continue
        if s.trace:
            out.append(s)
    return out


def accepted(s: Schedule) -> bool:
    """What the transformations' own check says about the same tree."""
    try:
        replace(s, _deferred=False)._verify(lambda: "proposal", "all", None)
    except IllegalSchedule:
        return False
    return True


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_accepted_exactly_when_no_pair_is_violated(seed: int) -> None:
    r = random.Random(seed)
    scop = program(r)
    pairs = brute_order.conflicts(scop)
    for s in proposals(scop, r):
        assert accepted(s) == brute_order.legal(scop, s.tree, pairs), f"{s.save()}\n{scop}\n{s}"


@pytest.mark.parametrize("seed", range(PROGRAMS, PROGRAMS + 15))
def test_step_by_step_checks_agree_with_the_check_of_the_result(seed: int) -> None:
    """A mark or a split asks a smaller question; the full check must never disagree afterwards."""
    r = random.Random(seed)
    scop = program(r)
    s = Schedule.start(scop)
    for _ in range(12):
        try:
            s = steps(s, r)
        except ScheduleError:
            continue
        assert accepted(s), s.save()
    assert Schedule.replay(scop, s.save()).save() == s.save()
    assert str(Schedule.replay(scop, s.save())) == str(s)


def test_both_answers_occur() -> None:
    """The generator exercises acceptance and refusal alike."""
    answers = []
    for seed in range(20):
        r = random.Random(seed)
        scop = program(r)
        answers += [accepted(s) for s in proposals(scop, r)]
    assert 0.2 < sum(answers) / len(answers) < 0.8
