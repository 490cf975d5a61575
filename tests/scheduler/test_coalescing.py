"""`coalesce`: a local array in the places of another, accepted only where every result stays the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from back_ends import interpret
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyc import dims, empty, f32, f64, i64, inout, op
from polyc.emit.targets import host
from polyc.frontend_dsl.operator import Operator
from polyc.poly.errors import ScheduleError
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

N = dims("N")


@op
def lower(L: f64[N, N], X: inout(f64[N])):
    for i in range(N):
        w = X[i]
        for j in range(i):
            w -= L[i, j] * X[j]
        X[i] = w / L[i, i]


@op
def seen_between(X: inout(f64[N]), Y: inout(f64[N])):
    for i in range(N):
        w = X[i] * 2.0
        Y[i] = X[i]
        X[i] = w


@op
def kept_after(X: inout(f64[N])):
    for i in range(N):
        w = X[i]
        for j in range(3):
            w += 1.0


@op
def narrowed(X: inout(f32[N]), Y: f64[N]):
    w = empty(N, f64)
    for i in range(N):
        w[i] = Y[i]
        X[i] = f32(w[i])


@op
def factored(A: inout(f64[N, N])):
    for i in range(N):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, N):
            w = A[i, j]
            for k in range(i):
                w -= A[i, k] * A[k, j]
            A[i, j] = w


def test_a_sum_in_a_scalar_becomes_one_in_place() -> None:
    s = lower.scop().schedule().coalesce("w", "X")
    assert list(s.scop.arrays) == ["L", "X"]
    assert {x.array for x in s.scop.statements.values()} == {"X"}
    assert [x.reduction for x in s.scop.statements.values()] == ["+", None]
    rng = np.random.default_rng(0)
    matrix, x = rng.standard_normal((17, 17)) + 9 * np.eye(17), rng.standard_normal(17)
    got = x.copy()
    lower.compile(schedule=s)(matrix, got)
    np.testing.assert_allclose(got, np.linalg.solve(np.tril(matrix), x), rtol=1e-12)


@pytest.mark.parametrize(
    ("operator", "into", "why"),
    [
        (seen_between, "X", "would see another value of S0"),
        (seen_between, "Y", "no statement copies elements"),
        (kept_after, "X", "the caller would see what S1 leaves there"),
        (narrowed, "X", "read only or of another type"),
        (narrowed, "Y", "read only or of another type"),
        (lower, "w", "no local array beside"),
        (lower, "Z", "no array 'Z'"),
    ],
)
def test_refused(operator: Operator, into: str, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        operator.scop().schedule().coalesce("w", into)


def test_factorizations_with_sums_in_scalars_run_in_blocks() -> None:
    """As in PolyBench's ludcmp; small sizes keep their scalars."""
    s = automatic(factored.scop(N=500), host())
    assert any("w kept in A, w_1 kept in A, blocks of" in note for note in s.notes)
    assert "w" in automatic(factored.scop(N=40), host()).scop.arrays
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((300, 300)) + 40 * np.eye(300)
    got = matrix.copy()
    factored.compile(N=300)(got)
    lower_part, upper = np.tril(got, -1) + np.eye(300), np.triu(got)
    np.testing.assert_allclose(lower_part @ upper, matrix, atol=1e-10)


# ---- random programs ----------------------------------------------------------------------------


def program(r: random.Random) -> Any:
    """A nest that takes elements into a local array, changes them, looks around, and maybe puts them back."""
    change = r.choice(
        [f"w[i] += X[i + {r.randrange(3)}]", "w[i] = w[i] * 3", f"w[i] += Y[i] * X[{r.randrange(3)} + i]"]
    )
    parts = [
        f"w[i] = X[i + {r.choice([0, 0, 1])}]",
        *([f"Y[i] += X[i + {r.randrange(3)}]"] if r.random() < 0.2 else []),
        *([f"X[i + {r.randrange(3)}] = Y[i]"] if r.random() < 0.2 else []),
        f"for k in range(2): {change}",
        *([f"Y[i] -= X[i + {r.randrange(3)}]"] if r.random() < 0.2 else []),
        r.choice(["X[i] = w[i]", "X[i + 1] = w[i]", "X[i] = w[i] + 1", "Y[i] = w[i]", "X[i] = w[5 - i]"]),
    ]
    lines = ["@op", "def f(X: inout(i64[8]), Y: inout(i64[8])):", "    w = empty(6, i64)", "    for i in range(6):"]
    for part in parts:
        head, _, rest = part.partition(": ")
        lines += [f"        {head}:", f"            {rest}"] if rest else [f"        {part}"]
        if r.random() < 0.2:
            lines.append("    for i in range(6):")
    if lines[-1].endswith("range(6):"):
        lines.pop()
    return op.from_source("\n".join(lines), scope={"op": op, "i64": i64, "inout": inout, "empty": empty})


def check(seed: int) -> bool:
    """Whether it is accepted; then results stay the same."""
    r = random.Random(seed)
    scop = program(r).scop()
    s = Schedule.start(scop)
    try:
        s = s.coalesce("w", r.choice(["X", "X", "X", "Y"]))
    except ScheduleError:
        return False
    rng = np.random.default_rng(seed)
    args = [rng.integers(-9, 10, 8), rng.integers(-9, 10, 8)]
    wanted, got = ([x.tolist() for x in interpret(p.scop, p.tree, args)] for p in (Schedule.start(scop), s))
    assert got == wanted, f"{scop}\n{s}"
    return True


def test_both_verdicts_occur() -> None:
    assert {check(seed) for seed in range(60)} == {True, False}


@pytest.mark.long
@given(seed=st.integers(0, 10**6))
@settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, max_examples=1000)
def test_at_length(seed: int) -> None:
    check(seed)
