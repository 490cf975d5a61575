"""Dead and common statements inside Scops: what is left out, element by element, and that the results stay."""

from __future__ import annotations

import random
from dataclasses import replace

import islpy as isl
import numpy as np
import pytest
import random_scops
import small_scops as scops
from execute import execute

from polyc import dims, empty, exp, f32, grid, op, zeros
from polyc.poly.adjoint.copies import rewritten
from polyc.poly.dtypes import i64
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, Load, Var, const_int, loads
from polyc.poly.rewriting.waste import without_waste
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.target import Target
from polyc.poly.tree import Leaf
from polyc.scheduler.strategies.auto import automatic

N = dims("N")
CPU = Target("test", "x86_64-linux-gnu", "x86-64-v3", "", 256, 16, 32768, 1 << 20, 1 << 24, 64, 2, 4)
RNG = np.random.default_rng(0)


def instances(scop: Scop) -> int:
    return sum(int(s.domain.count_val().to_python()) for s in scop.statements.values())


@op
def half(X: f32[64]) -> f32[32]:
    T = zeros((64,), f32)
    Y = zeros((32,), f32)
    for i in range(64):
        T[i] = exp(X[i])
    for i in range(32):
        Y[i] = T[i] + T[i] * T[i]
    return Y


def test_a_statement_of_which_half_is_read_loses_half_its_domain_and_its_array_half_its_elements() -> None:
    scop = half.scop()
    found = without_waste(scop)
    (made,) = [s for s in found.statements.values() if s.array == "T"]
    assert made.domain.is_equal(isl.Set(f"{{ {made.name}[i] : 0 <= i < 32 }}"))
    assert found.arrays["T"].shape == (const_int(32),)
    assert len(found.statements) == 2  # the first values of both arrays are overwritten before they are read


@op
def one_element(X: f32[N]) -> f32[1]:
    T = zeros((N,), f32)
    U = zeros((N,), f32)
    Y = zeros((1,), f32)
    for i in range(N):
        T[i] = exp(X[i])
    for i in range(N):
        U[i] = exp(T[i]) + T[i]
    Y[0] = U[0] * U[0]
    return Y


def test_what_is_needed_is_handed_on_for_any_size() -> None:
    found = without_waste(one_element.scop())
    made = {s.array: s for s in found.statements.values()}
    assert [made[n].domain.dim_max_val(0).to_python() for n in "TU"] == [0, 0]


@op
def every_second(X: f32[64], W: f32[64, 64]) -> f32[32]:
    T = zeros((64,), f32)
    U = zeros((64,), f32)
    Y = zeros((32,), f32)
    for i in range(64):
        T[i] = exp(X[i])
    for i in range(64):
        for k in range(64):
            U[i] += W[i, k]
    for i in range(32):
        Y[i] = T[2 * i] + U[2 * i]
    return Y


def test_remainders_of_single_assignments_but_not_of_sums() -> None:
    found = without_waste(every_second.scop())
    counts = {s.array: int(s.domain.count_val().to_python()) for s in found.statements.values()}
    assert counts["T"] == 32 and counts["U"] == 64 * 64


@op
def top_rows(A: f32[64, 16], B: f32[16, 8]) -> f32[20, 8]:
    C = empty((64, 8), f32)
    D = empty((64, 8), f32)
    Y = empty((20, 8), f32)
    for i, j in grid(64, 8):
        C[i, j] = 0.0
        for k in range(16):
            C[i, j] += A[i, k] * B[k, j]
        D[i, j] = exp(C[i, j])
    for i, j in grid(20, 8):
        Y[i, j] = C[i, j] + D[i // 2, j]
    return Y


def test_statements_that_share_loops_are_cut_alike() -> None:
    found = without_waste(top_rows.scop())
    rows = {s.array: s.domain.dim_max_val(0).to_python() for s in found.statements.values()}
    assert rows == {"C": 19, "D": 19, "Y": 19}  # of D ten rows would do


@op
def shifted(X: f32[64]) -> f32[32]:
    T = zeros((63,), f32)
    U = zeros((64,), f32)
    Y = zeros((32,), f32)
    for i in range(63):
        T[i] = exp(X[i + 1]) * 2.0
    for j in range(64):
        U[j] = exp(X[j]) * 2.0
    for i in range(32):
        Y[i] = T[i + 16] + U[i + 20]
    return Y


def test_equal_statements_become_one_by_their_access_maps() -> None:
    found = without_waste(shifted.scop())
    made = [s for s in found.statements.values() if s.array != "Y"]
    assert len(made) == 1 and made[0].domain.count_val().to_python() == 35  # X[17] to X[51]


@op
def sums(X: f32[64, 8]) -> f32[64]:
    T = zeros((64,), f32)
    U = zeros((64,), f32)
    Y = zeros((64,), f32)
    for i in range(64):
        for k in range(8):
            T[i] += X[i, k] * X[i, k]
    for a in range(64):
        for b in range(8):
            U[a] += X[a, b] * X[a, b]
    for i in range(64):
        Y[i] = T[i] * U[63 - i]
    return Y


@op
def padded(X: f32[N]) -> f32[(N + 1) // 2]:
    """Where N is even nobody reads the last element of P."""
    P = zeros((N + 2,), f32)
    Y = empty(((N + 1) // 2,), f32)
    for i in range(N):
        P[i + 1] = X[i]
    for i in range((N + 1) // 2):
        Y[i] = P[2 * i] + P[2 * i + 1] + P[2 * i + 2]
    return Y


def test_remainders_at_the_end_of_any_size_are_no_reason_to_ask_in_every_iteration() -> None:
    scop = padded.scop()
    assert without_waste(scop) is scop


@op
def gaps(X: f32[N]) -> f32[(N + 1) // 2]:
    T = empty((N,), f32)
    Y = empty(((N + 1) // 2,), f32)
    for i in range(N):
        T[i] = exp(X[i])
    for i in range((N + 1) // 2):
        Y[i] = T[2 * i]
    return Y


def test_of_any_size_every_second_element_is_left_out() -> None:
    (made,) = [s for s in without_waste(gaps.scop()).statements.values() if s.array == "T"]
    assert made.domain.fix_val(isl.dim_type.param, 0, isl.Val(9)).count_val().to_python() == 5


@op
def changed_between(X: f32[64]) -> f32[64]:
    A = zeros((64,), f32)
    T = zeros((64,), f32)
    U = zeros((64,), f32)
    Y = zeros((64,), f32)
    for i in range(64):
        A[i] = X[i] + 1.0
    for i in range(64):
        T[i] = exp(A[i])
    for i in range(64):
        A[i] = A[i] + T[i]
    for i in range(64):
        U[i] = exp(A[i])
    for i in range(64):
        Y[i] = T[i] * U[i]
    return Y


def test_sums_are_shared_and_what_has_changed_between_is_not() -> None:
    assert "U" not in without_waste(sums.scop()).arrays
    found = without_waste(changed_between.scop())
    (last,) = [s for s in found.statements.values() if s.array == "Y"]
    assert "T" in found.arrays and {load.array for load in loads(last.value)} == {"T", "A"}  # Y computes exp(A) itself


@pytest.mark.parametrize("operator", [half, every_second, top_rows, shifted, sums, changed_between])
def test_the_compiled_operator_has_the_bits_of_the_program_as_written(operator) -> None:  # type: ignore[no-untyped-def]
    scop = operator.scop()
    given = [RNG.random([int(e.value) for e in scop.arrays[n].shape], np.float32) for n in scop.args]
    whole = operator.compile(schedule=scop.schedule())(*given)
    np.testing.assert_allclose(operator.compile()(*given), whole, rtol=1e-6)


def pipeline(r: random.Random) -> Scop:
    """Statements over shifted parts of earlier arrays; many of them alike, some arrays overwritten."""
    arrays = {"X": Array("X", f32, (const_int(12),), "in")}
    made: list[Statement] = []
    names = ["X"]
    for k in range(r.randint(2, 6)):
        name = f"T{r.randrange(k + 1)}"
        arrays[name] = Array(name, f32, (const_int(12),), "local")
        low = r.randint(0, 2)
        high = r.randint(6, 9)

        def load(shift: int = 0) -> Load:
            at = Binary("+", Var("i"), const_int(r.choice([0, 0, 1, 2]) + shift), i64)
            return Load(r.choice(names), (at,), f32)

        value = scops.add(load(), load()) if r.random() < 0.7 else scops.mul(load(), load())
        domain = f"S{k}[i] : {low} <= i <= {high}"
        made.append(scops.stmt(f"S{k}", domain, f"{name}[i]", value))
        if r.random() < 0.6:  # the same once more, perhaps for other elements and by another name
            copy, d = f"U{k}", r.choice([0, 0, -1, 1])
            arrays[copy] = Array(copy, f32, (const_int(14),), "local")
            low, high = low + r.choice([0, 0, 1]), high + r.choice([0, 0, -1])
            if low <= high:
                again = replace(made[-1], name=copy, array=copy)
                index = (Binary("+", Var("i"), const_int(d + 1), i64),)
                dom = isl.Set(f"{{ {copy}[i] : {low} <= i <= {high} }}")
                made.append(replace(again, iters=("i",), domain=dom, index=index))
                names.append(copy)
        names.append(name)
    arrays["Y"] = Array("Y", f32, (const_int(12),), "out")
    made.append(scops.stmt("R", "R[i] : 0 <= i < 6", "Y[i]", scops.add(load(), load(), load())))
    arrays = {n: a for n, a in arrays.items() if n in ("X", "Y") or any(s.array == n for s in made)}
    tree = scops.seq(*(([s], scops.band([s], s.iters, Leaf())) for s in made))
    context = isl.Set("{ : }").params()
    return Scop("pipeline", (), context, arrays, {s.name: s for s in made}, tree, ("X",), ("Y",))


@pytest.mark.parametrize("part", range(2))
def test_random_pipelines_keep_their_results(part: int) -> None:
    fewer = merged = defined = 0
    for seed in range(part * 60, part * 60 + 60):
        scop = pipeline(random.Random(seed))
        found = without_waste(scop)
        given = {"X": RNG.integers(-4, 5, 12).astype(np.float32)}
        wanted = execute(scop, given)["Y"]
        known = ~np.isnan(wanted)  # a value that nobody has written may become any other
        np.testing.assert_array_equal(execute(found, given)["Y"][known], wanted[known], str(seed))
        defined += np.count_nonzero(known)
        fewer += instances(found) < instances(scop)
        merged += len(found.arrays) < len(scop.arrays)
    assert fewer >= 30 and merged >= 15 and defined >= 100


def roomy(scop: Scop) -> Scop:
    """A random program whose accesses all stay in their arrays, of which only A survives."""

    def moved(e: Expr) -> Expr:
        if not isinstance(e, Load):
            return e
        return replace(e, index=tuple(Binary("+", x, const_int(3), i64) for x in e.index))

    def placed(s: Statement) -> Statement:
        target = moved(s.target)
        assert isinstance(target, Load)
        return replace(rewritten(replace(s, index=target.index), moved), reduction=s.reduction)

    arrays = {
        n: replace(a, shape=tuple(const_int(12) for _ in a.shape), kind="local" if n in ("B", "s") else a.kind)
        for n, a in scop.arrays.items()
    }
    statements = {n: placed(s) for n, s in scop.statements.items()}
    return replace(scop, arrays=arrays, statements=statements, args=("A", "idx"))


def test_random_programs_keep_their_results() -> None:
    """Guards, remainders, indirect subscripts, loops that data end, reductions: with arrays that do not survive."""
    fewer = 0
    for seed in range(150):
        scop = roomy(random_scops.random_scop(random.Random(seed)))
        found = without_waste(scop)
        given = {"A": RNG.integers(-3, 4, 12).astype(np.float32), "idx": RNG.integers(0, 4, 12)}
        try:
            wanted = execute(scop, given)["A"]
        except ValueError:  # a bound that nobody has written
            continue
        np.testing.assert_array_equal(execute(found, given)["A"], wanted, str(seed))
        fewer += instances(found) < instances(scop)
    assert fewer >= 20


def test_the_automatic_schedule_begins_with_it_and_says_so() -> None:
    schedule = automatic(shifted.scop(), CPU)
    assert schedule.trace[0].name == "eliminate"
    assert any("dead, common and passing statements are left out" in note for note in schedule.notes)
    assert {s.array for s in schedule.scop.statements.values()} == {"U", "Y"}
    with pytest.raises(ScheduleError, match="every instance is needed"):
        schedule.scop.schedule().eliminate()
    with pytest.raises(ScheduleError, match="first of all steps"):
        shifted.scop().schedule().split("i", 8).eliminate()
