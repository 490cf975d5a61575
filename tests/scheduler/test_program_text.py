"""`Schedule.program()`: the trace as Python that rebuilds the schedule."""

from __future__ import annotations

import numpy as np
import pytest
from random_programs import generate
from random_schedules import random_schedule

from examples import polybench
from examples.matmul import matmul
from polyc import dims, empty, f32, op
from polyc.poly.errors import ArgumentError, PolycError
from polyc.poly.json_io import dump_tree
from polyc.scheduler.schedule import STEPS, Schedule

N = dims("N")


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
    text = s.program("jacobi")
    assert text == s.program("jacobi(tsteps=5)")
    assert text.splitlines() == ["s = jacobi.scop(tsteps=5).schedule()", 's = s.reverse("i", guarded=True)']
    assert dump_tree(rebuilt(text, jacobi=jacobi).tree) == dump_tree(s.tree)


@op
def scaled(X: f32[...], W: f32[N], *, factor: float = 1.0) -> f32[N]:
    Y = empty(N, f32)
    for i in range(X.shape[0]):
        Y[i] = X[i] * W[i] * factor
    return Y


def test_constants_sizes_and_shapes_that_it_was_made_for() -> None:
    s = matmul.schedule(M=60, N=50)
    assert s.program().startswith("s = matmul.scop(M=60, N=50).schedule()\n")
    assert s.program("f()").startswith("s = f.scop().schedule()\n")
    edited = rebuilt(s.program().replace('split("i", 5)', 'split("i", 3)'), matmul=matmul)
    a, b = np.ones((60, 40), "f"), np.ones((40, 50), "f")
    np.testing.assert_array_equal(matmul.compile(schedule=edited)(a, b), np.full((60, 50), 40, "f"))
    with pytest.raises(ArgumentError, match="60"):
        matmul.compile(schedule=edited)(np.ones((61, 40), "f"), b)
    for factor in (2, 0.5, float("inf"), float("-inf")):
        made = scaled.scop(X=(7,), N=7, factor=factor).schedule().vectorize("i", 4)
        again = rebuilt(made.program(), scaled=scaled)
        assert dump_tree(again.tree) == dump_tree(made.tree)
        assert str(again.scop.statements) == str(made.scop.statements)


@pytest.mark.parametrize("seed", range(25))
def test_random_schedules_come_back(seed: int) -> None:
    scop = generate(seed).operator().scop()
    s = random_schedule(Schedule.start(scop), seed)
    assert dump_tree(rebuilt(s.program("op"), op=Named(scop)).tree) == dump_tree(s.tree)


def test_changed_numbers_give_the_changed_schedule() -> None:
    s = matmul.scop().schedule().tile(["i", "j"], [32, 32]).parallel("i.out")
    edited = rebuilt(s.program("matmul").replace("[32, 32]", "[16, 48]"), matmul=matmul)
    expected = matmul.scop().schedule().tile(["i", "j"], [16, 48]).parallel("i.out")
    assert dump_tree(edited.tree) == dump_tree(expected.tree)
    with pytest.raises(PolycError, match="block size of loop .j. must be"):
        rebuilt(s.program("matmul").replace("[32, 32]", "[16, 0]"), matmul=matmul)


def test_every_step_is_a_method() -> None:
    assert all(callable(getattr(Schedule, name)) for name in STEPS)
