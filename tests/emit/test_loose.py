"""Sets with remainders for which isl derives a wrong stride: the proof notices, and loops with a condition
around every statement are made instead."""

from __future__ import annotations

import back_ends
import numpy as np

from polyc import dims, f64, inout, op
from polyc.emit.lowering.lower import build_loops, lower
from polyc.emit.proof.proven import proven
from polyc.emit.proof.read_back import WrongLoops
from polyc.emit.targets import host
from polyc.scheduler.schedule import Schedule

N = dims("N")


@op
def triangle(A: inout(f64[N + 1, N + 2]), B: f64[N + 3, N + 1]):
    for i in range(2, N - 1):
        for j in range(i % 2, i + 1):
            for k in range(N - 1, j, -1):
                if (i - 2) % 3 == 0 and (j - i % 2) % 2 == 0:
                    A[i - 2, N - k + 1] += B[i, j]


def _schedule() -> Schedule:
    start = Schedule.start(triangle.scop())
    return start.strip_mine("i", 2).tile(["j", "k"], [3, 1]).interchange("j.in", "k.in")


def test_isl_still_loses_instances_of_this_tree() -> None:
    """When this fails isl has been mended and `loose` may go."""
    s = _schedule()
    try:
        proven(s.scop, build_loops(s.scop, s.tree, "triangle"))
    except WrongLoops as error:
        assert "the loops miss" in str(error)
    else:
        raise AssertionError("isl's loops are complete")


def test_the_loops_that_are_made_instead_are_proved_and_recorded() -> None:
    s = _schedule()
    fn = lower(s.scop, s.tree, "triangle", host())
    assert any("a condition around every statement" in note for note in fn.notes)
    for n in (4, 7, 13, 20):
        rng = np.random.default_rng()
        a, b = rng.integers(-9, 9, (n + 1, n + 2)) * 1.0, rng.integers(-9, 9, (n + 3, n + 1)) * 1.0
        expected = a.copy()
        triangle.python(expected, b)
        assert np.array_equal(back_ends.interpret(s.scop, s.tree, [a, b])[0], expected)
