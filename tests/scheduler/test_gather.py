"""`gather`: scatters as sums over the fibres of their subscripts, compared with the scatter itself, exactly."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import islpy as isl
import numpy as np
import pytest

from polyc import dims, empty, f64, grid, i64, inout, op
from polyc.emit import targets
from polyc.poly.dependences import conflicts, conflicts_among
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.legality import check_parallel
from polyc.poly.rewriting.gather import coordinates
from polyc.poly.verify import verify
from polyc.scheduler.programs import gather_sums
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

N, M = dims("N M")
RNG = np.random.default_rng(3)


def integers(*shape: int) -> np.ndarray[Any, Any]:
    """Whole numbers as floats: sums of them have no rounding, whatever their order."""
    return RNG.integers(-9, 10, shape).astype("d")


@op
def transposed(g: f64[N], w: f64[5]) -> f64[2 * N + 3]:
    X = empty(2 * N + 3, f64)
    for x in range(2 * N + 3):
        X[x] = 0.0
    for o in range(N):
        for k in range(5):
            X[2 * o + k] += g[o] * w[k]
    return X


@op
def padded(g: f64[4, 6, 5], w: f64[4, 3, 3, 3]) -> f64[3, 11, 9]:
    X = empty((3, 11, 9), f64)
    for c, y, x in grid(3, 11, 9):
        X[c, y, x] = 0.0
    for m, i, j, c, k, l in grid(4, 6, 5, 3, 3, 3):
        if 2 * i + k - 1 >= 0 and 2 * i + k - 1 < 11 and 2 * j + l - 1 >= 0 and 2 * j + l - 1 < 9:
            X[c, 2 * i + k - 1, 2 * j + l - 1] += g[m, i, j] * w[m, c, k, l]
    return X


@op
def stencil_backwards(A: inout(f64[N]), B: inout(f64[N]), *, steps: int = 4):
    for t in range(steps):
        for i in range(1, N - 1):
            A[i - 1] += B[i]
            A[i] += 2.0 * B[i]
            A[i + 1] += B[i]
        for i in range(1, N - 1):
            B[i] = A[i]


@op
def scan_backwards(g: f64[N]) -> f64[N]:
    X = empty(N, f64)
    for i in range(N):
        X[i] = 0.0
    for i in range(N):
        for j in range(i + 1):
            X[i - j] += g[i]
    return X


@op
def columns(P: f64[3, N]) -> f64[N + 2]:
    X = empty(N + 2, f64)
    for x in range(N + 2):
        X[x] = 0.0
    for k in range(3):
        for o in range(N):
            X[o + k] += P[k, o]
    return X


@op
def largest_backwards(place: i64[N], g: f64[N]) -> f64[3 * N]:
    X = empty(3 * N, f64)
    for x in range(3 * N):
        X[x] = 0.0
    for o in range(N):
        for k in range(3):
            if place[o] == k:
                X[3 * o + k] += g[o]
    return X


CASES = {
    "transposed": (transposed, (integers(7), integers(5)), "S1"),
    "padded": (padded, (integers(4, 6, 5), integers(4, 3, 3, 3)), "S1"),
    "scan": (scan_backwards, (integers(9),), "S1"),
    "columns": (columns, (integers(3, 8),), "S1"),
    "largest": (largest_backwards, (RNG.integers(0, 3, 6), integers(6)), "S1"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("phases", [False, True])
def test_the_scatters_values(name: str, phases: bool) -> None:
    """Bit for bit those of the scatter, with the loop over the first element coordinate parallel."""
    operator, arguments, statement = CASES[name]
    schedule = operator.scop().schedule()
    if phases and name in ("scan", "columns"):
        with pytest.raises(ScheduleError, match="has no phases"):
            schedule.gather(statement, phases=True)
        return
    gathered = schedule.gather(statement, phases=phases)
    verify(gathered.scop)
    of = next(f for f in gathered.scop.statements.values() if f.name == statement)
    outer = next(m for m in gathered.loops if m.startswith(of.iters[0]))
    gathered = gathered.parallel(outer)
    np.testing.assert_array_equal(operator.compile(schedule=gathered)(*arguments), operator.python(*arguments))
    assert Schedule.replay(operator.scop(), gathered.save()) == gathered
    assert eval_program(gathered, operator) == gathered


def eval_program(schedule: Schedule, operator: Any) -> Any:
    """The schedule that the printed program makes."""
    names = {operator.name: operator}
    exec(schedule.program(), names)
    return names["s"]


def test_a_phase_has_no_divisions() -> None:
    """Subscripts and bounds of phases count one by one."""
    gathered = padded.scop().schedule().gather("S1", phases=True)
    parts = [s for s in gathered.scop.statements.values() if s.reduction]
    assert len(parts) == 8  # sums and what adds them
    for s in parts:
        assert "//" not in str(s.value) and all(b.dim(isl.dim_type.div) == 0 for b in s.domain.get_basic_sets())


def test_the_best_coordinates_need_no_division() -> None:
    """`2 o + k` is summed over o, since k = x - 2 o."""
    scop = transposed.scop()
    best, other = coordinates(scop, scop.statements["S1"])
    assert (best.summed, best.divisions) == (("o",), 0)
    assert other.summed == ("k",) and other.divisions > 0


def test_time_stays_outside() -> None:
    """The three updates of a stencil's adjoint are loops over elements inside the time loop, side by side."""
    schedule = stencil_backwards.scop().schedule().distribute("i")
    gathered = schedule.gather("S0").gather("S2").fuse("A_0", "i_2", shift=0).fuse("A_0", "A_0_1", shift=0)
    gathered = gathered.parallel("A_0")
    for seed in range(2):
        a, b = integers(9 + seed), integers(9 + seed)
        want = [a.copy(), b.copy()]
        stencil_backwards.python(*want)
        found = [a.copy(), b.copy()]
        stencil_backwards.compile(schedule=gathered)(*found)
        np.testing.assert_array_equal(found[0], want[0])
        np.testing.assert_array_equal(found[1], want[1])


def test_what_it_is_not_for() -> None:
    """Each refusal says what stands against it."""

    @op
    def looked_up(place: i64[N], g: f64[N], X: inout(f64[N])):
        for i in range(N):
            X[place[i]] += g[i]

    @op
    def shared(g: f64[N], X: inout(f64[2 * N]), Y: inout(f64[N])):
        for i in range(N):
            X[2 * i] += g[i]
            Y[i] = 2.0 * g[i]

    for operator, call, why in (
        (looked_up, {"statement": "S0"}, "data decide which element"),
        (shared, {"statement": "S1"}, "is no update"),
        (shared, {"statement": "S7"}, "no statement 'S7'"),
        (shared, {"statement": "S0"}, "all of its loops are kept"),
        (shared, {"statement": "S0", "keep": []}, "S1 in loop 'i' too"),
        (transposed, {"statement": "S1", "over": []}, "do not tell its instances apart"),
    ):
        with pytest.raises(ScheduleError, match=why):
            operator.scop().schedule().gather(**call)


def test_a_recurrence_is_refused_by_the_judge() -> None:
    """A sum that reads elements which it completes keeps their order."""

    @op
    def solve(L: f64[N, N], X: inout(f64[N])):
        for i in range(N):
            for j in range(N):
                if i != j:
                    X[j] += X[i] * L[i, j]

    with pytest.raises(IllegalSchedule) as refusal:
        solve.scop().schedule().gather("S0", over=["i"])
    assert refusal.value.witness is not None


def fibre(f: Sequence[Sequence[int]], extents: Sequence[int]) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """The instances that update each element, one by one."""
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for i in itertools.product(*map(range, extents)):
        x = tuple(sum(a * b for a, b in zip(row, (*i, 1), strict=True)) for row in f)
        found.setdefault(x, set()).add(i)
    return found


@pytest.mark.parametrize("seed", range(25))
def test_random_scatters(seed: int) -> None:
    """Random subscripts of two dimensions over three loops: values by brute force, in all forms; a parallel loop
    over the element whenever the judge of order grants one."""
    r = random.Random(seed)
    extents = [r.randint(2, 4) for _ in range(3)]
    f = [[r.choice((0, 1, 1, 2, -1, 3)) for _ in range(3)] for _ in range(2)]
    for row in f:
        row.append(sum(-a * (e - 1) for a, e in zip(row, extents, strict=True) if a < 0))
    size = [1 + sum(max(a, 0) * (e - 1) for a, e in zip(row, extents, strict=False)) + row[3] for row in f]
    subscripts = ", ".join(" + ".join([f"{a} * {v}" for a, v in zip(row, "ijk", strict=False)] + [str(row[3])])
                           for row in f)  # fmt: skip
    text = f"""
def scatter(g: f64[{extents[0]}, {extents[1]}, {extents[2]}], X: inout(f64[{size[0]}, {size[1]}])):
    for i, j, k in grid({extents[0]}, {extents[1]}, {extents[2]}):
        if i + j >= {r.randint(0, 2)}:
            X[{subscripts}] += g[i, j, k]
"""
    operator = op.from_source(text)
    g = integers(*extents)
    want = np.zeros(size)
    operator.python(g, want)
    start = operator.scop().schedule()
    for phases in (False, True):
        try:
            gathered = start.gather("S0", phases=phases)
        except ScheduleError as error:
            assert "has no phases" in str(error) or "gathered already" in str(error)
            continue
        verify(gathered.scop)
        for s in gathered.scop.statements.values():
            moving = [i for i in s.iters if i.startswith("X_")]
            for loop in gathered.loops:
                if loop in moving:
                    assert check_parallel(gathered.scop, gathered.tree, loop) is None
        found = np.zeros(size)
        operator.compile(schedule=gathered)(g, found)
        np.testing.assert_array_equal(found, want)
    best = coordinates(start.scop, start.scop.statements["S0"])[0]
    sums = fibre(f, extents)
    assert best.points.count_val().to_python() <= sum(map(len, sums.values()))


# ---- the automatic choice ------------------------------------------------------------------------


@op
def convolution_backwards(g: f64[32, 17, 17], w: f64[32, 16, 3, 3], gX: inout(f64[16, 33, 33])):
    for f, y, x, c, k, l in grid(32, 17, 17, 16, 3, 3):
        if 2 * y + k - 1 >= 0 and 2 * y + k - 1 < 33 and 2 * x + l - 1 >= 0 and 2 * x + l - 1 < 33:
            gX[c, 2 * y + k - 1, 2 * x + l - 1] += g[f, y, x] * w[f, c, k, l]


@op
def overlapping(P: f64[8, 3, 3, 32, 32], X: inout(f64[8, 34, 34])):
    for c, k, l, y, x in grid(8, 3, 3, 32, 32):
        X[c, y + k, x + l] += P[c, k, l, y, x]


def gathering(operator: Any, threads: int = 1) -> Any:
    """The automatic schedule for a machine with long vectors, and what was decided about its scatters."""
    schedule = automatic(operator.scop(), targets.get("x86-64-v4"), threads)
    return schedule, [d for d in schedule.decisions if d.stage == "gathering"]


def test_the_model_chooses_the_form() -> None:
    """Phases make products in register tiles of a convolution's derivative; columns that overlap stay a scatter, whose
    lanes are as good. Both say what each form costs."""
    schedule, (phases,) = gathering(convolution_backwards)
    assert (
        "S0 over its elements in phases" in phases.what and phases.figures["S0_phases"] < phases.figures["S0_scatter"]
    )
    assert sum("register tile" in n for n in schedule.notes) == 4
    args = integers(32, 17, 17), integers(32, 16, 3, 3)
    want, found = np.zeros((16, 33, 33)), np.zeros((16, 33, 33))
    convolution_backwards.compile(schedule=convolution_backwards.scop().schedule())(*args, want)
    convolution_backwards.compile(schedule=schedule)(*args, found)
    np.testing.assert_array_equal(found, want)
    _, (scatter,) = gathering(overlapping)
    assert scatter.outcome == "declined" and set(scatter.figures) == {"S0_scatter", "S0_elements"}


def test_blocks_do_not_scatter() -> None:
    """A subscript of two loops that tells their iterations apart needs no other form."""

    @op
    def in_blocks(A: f64[37, 64], B: f64[64, 200]) -> f64[37, 200]:
        Y = empty((37, 200), f64)
        for i, n in grid(37, 200):
            Y[i, n] = 0.0
        for q, c in grid(25, 4):
            D = empty((16, 8), f64)
            for e, p in grid(16, 8):
                D[e, p] = 2.0 * B[16 * c + e, 8 * q + p]
            for i in range(37):
                y = empty(8, f64)
                for p in range(8):
                    y[p] = 0.0
                for e in range(16):
                    for p in range(8):
                        y[p] += A[i, 16 * c + e] * D[e, p]
                for p in range(8):
                    Y[i, 8 * q + p] += y[p]
        return Y

    schedule = automatic(in_blocks.scop(), targets.get("x86-64-v3"))
    assert not [s for s in schedule.trace if s.name == "gather"]
    a, b = integers(37, 64), integers(64, 200)
    assert (in_blocks.compile(schedule=schedule, threads=1)(a, b) == 2 * a @ b).all()


def test_updates_of_a_stencil_get_loops_each() -> None:
    """No loop around the updates as written is parallel; each alone has one."""
    schedule, (apart,) = gathering(stencil_backwards)
    assert apart.figures["parallel_before"] == 1 and apart.figures["parallel"] == apart.figures["statements"] == 4
    a, b = integers(40), integers(40)
    want = [a.copy(), b.copy()]
    stencil_backwards.python(*want)
    stencil_backwards.compile(schedule=schedule)(a, b)
    np.testing.assert_array_equal(a, want[0])
    np.testing.assert_array_equal(b, want[1])


def test_the_program_chooses_phases_by_strides() -> None:
    """`gather_sums` without forms: phases where subscripts have a stride."""
    schedule = gather_sums(convolution_backwards.scop().schedule(), "f")
    assert [s.args for s in schedule.trace if s.name == "gather"] == [{"statement": "S0", "phases": True}]


@pytest.mark.parametrize("operator", [transposed, padded, stencil_backwards])
def test_conflicts_of_some_statements_are_those_of_all(operator: Any) -> None:
    scop = operator.scop()
    whole = conflicts(scop)
    for count in range(1, len(scop.statements) + 1):
        for some in itertools.combinations(scop.statements, count):
            part = conflicts_among(scop, some)
            for all_of, found in ((whole.ordered, part.ordered), (whole.relaxed, part.relaxed)):
                wanted = {pair: m for pair, m in all_of.items() if {*pair} <= {*some}}
                assert found.keys() == wanted.keys()
                assert all(m.is_equal(wanted[pair]) for pair, m in found.items())
