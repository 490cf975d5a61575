"""The quick answers about loops agree with the general test, on blocked, sunk, skewed and shifted loops."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from random_schedules import PROPOSALS, apply

from examples import polybench
from polyc.poly.errors import ScheduleError
from polyc.poly.legality import is_legal
from polyc.poly.ordering.narrowing import Facts
from polyc.poly.scop import Scop
from polyc.poly.tree import Node
from polyc.scheduler.schedule import Schedule

STEPS = ("tile", "tile", "split", "strip_mine", "interchange", "skew", "shift", "fuse", "reverse", "parallel", "peel")
KERNELS = ("lu", "cholesky", "ludcmp", "trisolv", "symm", "jacobi-1d", "seidel-2d", "nussinov", "gemm", "durbin")


def proposals(scop: Scop, r: random.Random) -> list[Node]:
    trees = []
    for _ in range(6):
        s = replace(Schedule.start(scop), _deferred=True)
        for _ in range(r.randint(1, 3)):
            name = r.choice(STEPS)
            try:
                s = apply(s, name, PROPOSALS[name](s, r))
            except ScheduleError:
                continue
        trees.append(s.tree)
    return trees


@pytest.mark.parametrize("name", KERNELS)
def test_quick_and_general_answers_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = polybench.load(name)
    scop = kernel.operator.scop(**kernel.arguments("MINI")[1])
    trees = proposals(scop, random.Random(name))
    quick = [is_legal(scop, tree) for tree in trees]
    again = [is_legal(scop, tree) for tree in trees]  # with all answers known
    monkeypatch.setattr(Facts, "_bases", lambda *_: None)
    assert quick == again == [is_legal(replace(scop), tree) for tree in trees]
