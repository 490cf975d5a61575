"""Loops with steps count their iterations: blocks are blocks of iterations, and domains have no remainders."""

import islpy as isl
import numpy as np
import pytest

from polyc.frontend_dsl import dims, inout, op
from polyc.poly.dtypes import f32
from polyc.poly.tree import Band, walk

N, M = dims("N M")


@op
def down(A: inout(f32[N])):
    for i in range(N - 1, 0, -3):
        A[i] = A[i] * 2.0


@op
def up(A: inout(f32[N])):
    for i in range(1, N, 5):
        A[i] = A[i] + i


@op
def triangle(A: inout(f32[N, N])):
    for i in range(0, N, 2):
        for j in range(i + 1, N, 3):
            A[i, j] = A[j, i] + 1.0


@op
def bounded(A: inout(f32[N, N])):
    for i in range(0, N):
        for j in range(max(0, i - 40), min(N, i + 50), 2):
            A[i, j] = A[i, j] + j


@op
def back(A: inout(f32[N, N])):
    for i in range(N - 1, -1, -2):
        for j in range(i, -1, -3):
            A[i, j] = A[i, j] * 0.5 + i


PROGRAMS = [down, up, triangle, bounded, back]
SIZES = (1, 2, 3, 5, 16, 17, 47, 48, 61)


def _remainders(s: isl.Set) -> int:
    return sum(b.dim(isl.dim_type.div) for b in s.get_basic_sets())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_domains_have_no_remainders_and_runs_are_right(program):
    scop = program.scop()
    assert [_remainders(s.domain) for s in scop.statements.values()] == [0]
    kernel = program.compile()
    rank = len(scop.arrays["A"].shape)
    for n in SIZES:
        a = np.random.default_rng(n).random((n,) * rank).astype("f4")
        want = a.copy()
        kernel(a)
        program.python(want)
        np.testing.assert_array_equal(a, want)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_split_and_peel_stay_small_and_right(program):
    schedule = program.scop().schedule()
    loop = schedule.loops[-1]
    schedule = schedule.split(loop, 2).parallel(f"{loop}.in").split(f"{loop}.out", 8)
    schedule = schedule.peel(f"{loop}.out.in", first=2, last=1)
    assert len(str(schedule)) < 4000
    pieces = [pa.n_piece() for n in walk(schedule.tree) if isinstance(n, Band)
              for m in n.members for pa in m.schedule.values()]  # fmt: skip
    assert max(pieces) == 1
    kernel = program.compile(schedule=schedule)
    rank = len(program.scop().arrays["A"].shape)
    for n in SIZES:
        a = np.random.default_rng(n).random((n,) * rank).astype("f4")
        want = a.copy()
        kernel(a)
        program.python(want)
        np.testing.assert_array_equal(a, want)


def test_a_local_of_a_strided_loop_has_room_for_its_iterations_only():
    @op
    def local(A: inout(f32[N])):
        for i in range(N - 1, -1, -4):
            t = A[i] * 2.0
            t += 1.0
            A[i] = t

    locals_ = [a for a in local.scop(N=10).arrays.values() if a.kind == "local"]
    assert locals_ and all([e.value for e in a.shape] == [3] for a in locals_)
    kernel = local.compile()
    for n in SIZES:
        a = np.arange(n, dtype="f4")
        want = a.copy()
        kernel(a)
        local.python(want)
        np.testing.assert_array_equal(a, want)
