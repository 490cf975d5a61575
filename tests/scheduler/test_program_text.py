"""`Schedule.program()`: the trace as Python that rebuilds the schedule."""

from __future__ import annotations

import pytest
from random_programs import generate
from random_schedules import random_schedule

from examples import polybench
from examples.matmul import matmul
from polyc.poly.errors import PolycError
from polyc.poly.json_io import dump_tree
from polyc.scheduler.schedule import STEPS, Schedule


class Named:
    """An operator of which only `scop()` is there."""

    def __init__(self, scop: object) -> None:
        self._scop = scop

    def scop(self, **constants: object) -> object:
        return self._scop


def rebuilt(text: str, **names: object) -> Schedule:
    space = dict(names)
    exec(text, space)
    made = space["s"]
    assert isinstance(made, Schedule)
    return made


def test_the_text_is_what_a_person_would_write() -> None:
    s = matmul.scop().schedule()
    s = s.tile(["i", "j", "k"], [64, 64, 8]).interchange("j.in", "k.in").vectorize("j.in", 16)
    s = s.promote("A", at="k.out").parallel("i.out").unroll("i.in").permute("i.out", "j.out")
    assert s.program("matmul").splitlines() == [
        "s = matmul.scop().schedule()",
        's = s.tile(["i", "j", "k"], [64, 64, 8])',
        's = s.interchange("j.in", "k.in")',
        's = s.vectorize("j.in", lanes=16)',
        's = s.promote("A", at="k.out")',
        's = s.parallel("i.out")',
        's = s.unroll("i.in")',
        's = s.permute("i.out", "j.out")',
    ]
    assert dump_tree(rebuilt(s.program("matmul"), matmul=matmul).tree) == dump_tree(s.tree)


def test_constants_stand_where_the_scop_is_made() -> None:
    jacobi = polybench.load("jacobi-1d").operator
    s = jacobi.scop(tsteps=5).schedule().reverse("i", guarded=True)
    text = s.program("jacobi(tsteps=5)")
    assert text.splitlines() == ["s = jacobi.scop(tsteps=5).schedule()", 's = s.reverse("i", guarded=True)']
    assert dump_tree(rebuilt(text, jacobi=jacobi).tree) == dump_tree(s.tree)


@pytest.mark.parametrize("seed", range(25))
def test_random_schedules_come_back(seed: int) -> None:
    scop = generate(seed).operator().scop()
    s = random_schedule(Schedule.start(scop), seed)
    assert dump_tree(rebuilt(s.program(), op=Named(scop)).tree) == dump_tree(s.tree)


def test_changed_numbers_give_the_changed_schedule() -> None:
    s = matmul.scop().schedule().tile(["i", "j"], [32, 32]).parallel("i.out")
    edited = rebuilt(s.program("matmul").replace("[32, 32]", "[16, 48]"), matmul=matmul)
    expected = matmul.scop().schedule().tile(["i", "j"], [16, 48]).parallel("i.out")
    assert dump_tree(edited.tree) == dump_tree(expected.tree)
    with pytest.raises(PolycError, match="block size of loop .j. must be"):
        rebuilt(s.program("matmul").replace("[32, 32]", "[16, 0]"), matmul=matmul)


def test_every_step_is_a_method() -> None:
    assert all(callable(getattr(Schedule, name)) for name in STEPS)
