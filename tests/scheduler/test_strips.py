"""Loops that are cut, taken apart or reordered for vector lanes: results keep every bit, and what must wait does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import dims, empty, f32, i32, inout, op
from polyc.emit import targets
from polyc.poly.errors import ScheduleError
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.tree import loops_below
from polyc.scheduler.cost.vector_loops import diagonal as is_diagonal
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from tests.campaign import check_llvm

N, M = dims("N M")
TARGET = targets.get("x86-64-v4")


@op
def backwards(A: inout(f32[N]), B: inout(f32[N]), C: f32[N]):
    """The statements are to change places, and B[i + 1] is read before it is overwritten."""
    for i in range(1, N - 1):
        A[i] = B[i - 1] + C[i]
        B[i] = B[i + 1] * C[i]


@op
def circle(A: inout(f32[N]), B: inout(f32[N]), C: inout(f32[N])):
    """A true circle, and a statement that is not part of it."""
    for i in range(1, N - 1):
        A[i] = B[i - 1] * 0.5
        B[i] = A[i] + B[i]
        C[i] = 0.5 * C[i + 1] - A[i]


@op
def guarded(A: inout(f32[N]), B: f32[N], C: inout(f32[N])):
    """What one arm writes the other reads an iteration later; subscripts that only the condition keeps inside."""
    for i in range(N):
        if B[i] < 0.0 and i < N - 1:
            C[i + 1] = A[i] * 2.0
        else:
            A[i] = C[i] + B[i]


@op
def rows(A: inout(f32[M, N]), B: inout(f32[M, N])):
    """Inside another loop that carries dependences, too."""
    for r in range(1, M):
        for i in range(N - 1):
            A[r, i] = B[r, i] + A[r - 1, i]
            B[r, i] = A[r, i + 1] * A[r - 1, i + 1]


@op
def two_sums(A: inout(f32[N]), B: inout(f32[N]), C: f32[N], t: inout(f32[1])):
    for i in range(N):
        A[i] = C[i] + 1.0
        t[0] += A[i]
        B[i] = C[i] * 2.0
        t[0] += B[i]


@op
def sometimes(A: inout(f32[N])):
    for i in range(N - 1):
        A[i] = A[i + 1] if A[i] > 0.25 else 0.0


@op
def handed_on(A: inout(f32[N]), B: f32[N], C: f32[N]):
    """Iterations wait for a scalar that the one before has made of what no iteration changes."""
    t = f32(0.0)
    for i in range(N):
        s = B[i] * C[i]
        A[i] = s + t
        t = s


@op
def handed_round(A: inout(f32[N]), B: f32[N], C: f32[N]):
    """The same, but what is handed on is made of itself."""
    t = f32(0.0)
    for i in range(N):
        s = B[i] * C[i] * (C[i] + B[i]) / (1.0 + B[i] * B[i])
        A[i] = s * (s + C[i]) / (2.0 + C[i] * C[i])
        t = max(t * 0.5, s)
        A[i] = A[i] - t


OPERATORS = (backwards, circle, guarded, rows, two_sums)


def scheduled(operator: Any, n: int | None) -> Schedule:
    scop = operator.scop()
    return automatic(scop if n is None else specialise(scop, {p: n for p in scop.params}), TARGET)


def strips(s: Schedule) -> list[str]:
    return [d.what for d in s.decisions if d.what.startswith("strips of") and d.outcome == "done"]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
@pytest.mark.parametrize("n", [40, None])
def test_results_are_those_of_the_program(operator: Any, n: int | None) -> None:
    rng = np.random.default_rng(3)
    scop = operator.scop()
    sizes = dict.fromkeys(scop.params, 40)
    inputs = [
        rng.uniform(-1, 1, [1 if str(e) == "1" else sizes[str(e)] for e in p.shape]).astype(np.float32)
        for p in operator.signature.params
    ]
    wanted = [x.copy() for x in inputs]
    operator.python(*wanted)
    s = scheduled(operator, n)
    assert strips(s), s.notes
    updated = [w for w, name in zip(wanted, scop.args, strict=True) if scop.arrays[name].kind == "inout"]
    for got in (interpret(s.scop, s.tree, inputs, shuffle=5), *(native(s.scop, s.tree, inputs, b) for b in NATIVE)):
        for a, b in zip(got, updated, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6 if operator is two_sums else 0)


def test_only_the_circle_stays_serial() -> None:
    s = scheduled(circle, 4000)
    kinds = {n: m.kind for m in loops_below(s.tree) for n in m.schedule if not m.name.endswith(".out")}
    assert kinds["S0"] == kinds["S1"] == "serial" and kinds["S2"] == "vector"


def test_scalars_handed_on_are_left_to_lanes_that_look_beside_them() -> None:
    """The compiler of the loops takes them from the lane before; a strip's buffers would only cost."""
    (decision,) = (d for d in scheduled(handed_on, 32_000).decisions if "strips" in d.what)
    assert decision.outcome == "declined" and "hand on scalars" in decision.reason
    assert not any("hand on scalars" in d.reason for d in scheduled(handed_round, 32_000).decisions)


def test_strips_stay_in_the_first_level_cache() -> None:
    (decision,) = (d for d in scheduled(backwards, 100_000).decisions if d.what.startswith("strips of"))
    assert 0 < decision.figures["strip"] * 4 * 3 <= TARGET.l1 // 2


def test_read_first_refuses_what_is_not_always_read() -> None:
    s = Schedule.of(circle.scop())
    assert s.read_first("S0", "B[i - 1]").scop.statements["S0_B_read"].array == "B_read"
    with pytest.raises(ScheduleError, match=r"S0 does not read 'A\[i \+ 1\]' each time; it reads A\[i\]"):
        Schedule.of(sometimes.scop()).read_first("S0", "A[i + 1]")
    with pytest.raises(ScheduleError, match="no statement 'S9'"):
        s.read_first("S9", "A[i]")


@op
def mirrored(A: inout(f32[N]), B: f32[N]):
    for i in range(N):
        A[i] = A[N - 1 - i] + B[i]


@op
def around_the_middle(A: inout(f32[N]), B: f32[N]):
    for i in range(N):
        A[i] = A[N // 2] + B[i]


@op
def remainders(A: inout(f32[6, N])):
    """Conflicts of many divisions: isl has no answer in minutes to where the first of them ends."""
    for i in range(N - 1, 1, -1):
        if i % 3 == 0:
            A[i % 5, N - i + 1] = A[i % 4, i // 2] if A[i % 5, i - 1] < 2.0 and i > 2 else A[i % 6, N - i]


def test_an_end_of_many_divisions_is_not_searched() -> None:
    s = scheduled(remainders, None)
    assert not any("leads across" in d.what and d.outcome == "done" for d in s.decisions)
    a = np.random.default_rng(3).uniform(-1, 3, (6, 31)).astype(np.float32)
    wanted = a.copy()
    remainders.python(wanted)
    for got in (interpret(s.scop, s.tree, [a]), *(native(s.scop, s.tree, [a], x) for x in NATIVE)):
        np.testing.assert_array_equal(got[0], wanted)


@pytest.mark.parametrize("operator", [mirrored, around_the_middle], ids=lambda o: o.name)
@pytest.mark.parametrize("n, fixed", [(1, False), (16, False), (41, False), (40, True), (41, True)])
def test_loops_are_cut_where_conflicts_meet_or_cross(operator: Any, n: int, fixed: bool) -> None:
    s = scheduled(operator, n if fixed else None)
    assert any(d.what.startswith("cut at") and d.outcome == "done" for d in s.decisions), s.notes
    rng = np.random.default_rng(n)
    a, b = (rng.uniform(-1, 1, n).astype(np.float32) for _ in range(2))
    wanted = a.copy()
    operator.python(wanted, b)
    for got in (interpret(s.scop, s.tree, [a, b], shuffle=5), *(native(s.scop, s.tree, [a, b], x) for x in NATIVE)):
        np.testing.assert_array_equal(got[0], wanted)


@op
def two_directions(A: inout(f32[N, M]), B: inout(f32[N, M]), C: f32[N, M]):
    for i in range(1, M):
        for j in range(1, N):
            A[j, i] = A[j - 1, i] + C[j, i]
        for j in range(1, N):
            B[j, i] = B[j, i - 1] + C[j, i]
        B[0, i] = 1.0


@op
def diagonal(A: inout(f32[N, N])):
    for i in range(N):
        for j in range(N):
            A[j, i] = 0.5 * A[j, i]
        A[i, i] = 1.0


@pytest.mark.parametrize("operator", [two_directions, diagonal], ids=lambda o: o.name)
def test_parts_of_a_nest_get_loops_in_their_own_order(operator: Any) -> None:
    s = scheduled(operator, 37)
    assert any(m.kind == "vector" and "S0" in m.schedule and m.name == "i" for m in loops_below(s.tree)), s.notes
    rng = np.random.default_rng(1)
    inputs = [rng.uniform(-1, 1, (37, 37)).astype(np.float32) for _ in operator.signature.params]
    wanted = [x.copy() for x in inputs]
    operator.python(*wanted)
    updated = [w for w, name in zip(wanted, s.scop.args, strict=True) if s.scop.arrays[name].kind == "inout"]
    for got in (interpret(s.scop, s.tree, inputs, shuffle=5), *(native(s.scop, s.tree, inputs, x) for x in NATIVE)):
        for a, b in zip(got, updated, strict=True):
            np.testing.assert_array_equal(a, b)


@op
def long_sum(A: f32[N], B: f32[N], t: inout(f32[1])):
    for i in range(N):
        t[0] = t[0] + A[i] * B[i] - A[i] + B[i]


@op(reassociate=False)
def long_sum_in_order(A: f32[N], B: f32[N], t: inout(f32[1])):
    for i in range(N):
        t[0] = t[0] + A[i] * B[i] - A[i] + B[i]


@op
def no_sum(A: inout(f32[N]), B: f32[N]):
    for i in range(N):
        A[i] = A[i] + B[i] + 0.1


def test_sums_of_several_summands_are_reductions_where_they_may_be_reassociated() -> None:
    assert long_sum.scop().statements["S0"].reduction == "+"
    assert long_sum_in_order.scop().statements["S0"].reduction is None
    assert no_sum.scop().statements["S0"].reduction is None  # rounding stays as written
    rng = np.random.default_rng(2)
    a, b, t = (rng.uniform(-1, 1, n).astype(np.float32) for n in (200, 200, 1))
    exact = float(t[0] + np.sum(a.astype(float) * b - a + b))
    s = scheduled(long_sum, 200)
    for got in (interpret(s.scop, s.tree, [a, b, t]), *(native(s.scop, s.tree, [a, b, t], x) for x in NATIVE)):
        np.testing.assert_allclose(got[0], exact, rtol=1e-5)


def test_panels_are_no_diagonals() -> None:
    """Two subscripts of a panel hold the loop over its elements, and one of them moves along a vector."""

    @op
    def scaled(W: f32[4, 16], X: f32[64]) -> f32[64]:
        Y = empty(64, f32)
        for g in range(64):
            Y[g] = X[g] * W[g // 16, g % 16]
        return Y

    for operator, found in ((scaled, False), (diagonal, True)):
        tree = operator.scop().schedule().tree
        assert any(is_diagonal(operator.scop(), m, m.schedule) for m in loops_below(tree)) is found


@op
def sampled(X: f32[N, N], P: f32[N, 2]) -> f32[N]:
    Y = empty((N,), f32)
    for x in range(N):
        Y[x] = 0.0
        for i in range(2):
            for j in range(2):
                Y[x] += X[i32(P[x, 0]) + i, i32(P[x, 1]) + j]
    return Y


def test_places_that_data_decide_are_no_diagonal() -> None:
    """They are read one by one in any loop; lanes over two iterations of a sum instead take three times as long."""
    s = scheduled(sampled, 37)
    (x,) = [m for m in loops_below(s.tree) if m.name == "x"]
    assert not is_diagonal(s.scop, x, ["S0", "S1"])
    assert all(m.kind != "vector" for m in loops_below(s.tree) if m.name in ("i", "j"))


@pytest.mark.parametrize("seed", [406153, 406645, 20261621])
def test_programs_of_the_campaign_that_once_failed(seed: int) -> None:
    """A read that data decide how often; a band whose loops have gone; sweeps side by side whose blocks hand values to
    each other on every diagonal (all ended in an error)."""
    assert check_llvm(seed)[0] is None
