"""Largest and smallest values found by conditions, and their places: reductions, with plain Python's results."""

from __future__ import annotations

from typing import Any

import back_ends
import numpy as np
import pytest

from polyc import dims, empty, f32, f64, i32, inout, op, u8
from polyc.emit.targets import host
from polyc.scheduler.strategies.auto import automatic

N, M = dims("N M")


@op
def largest(X: f32[M, N]) -> (f32[M], i32[M]):
    best, at = empty(M, f32), empty(M, i32)
    for i in range(M):
        best[i] = X[i, 0]
        at[i] = 0
        for j in range(1, N):
            if X[i, j] > best[i]:
                best[i] = X[i, j]
                at[i] = j
    return best, at


@op
def smallest_below_a_limit(X: f32[M, N], limit: f32) -> (f32[()], i32[2]):
    best, at = empty((), f32), empty(2, i32)
    b, row, column = limit, -1, -2
    for i in range(M):
        for j in range(i, N, 2):
            if b > abs(X[i, j]):
                row = i
                b = abs(X[i, j])
                column = j + 1
    best[()] = b
    at[0] = i32(row)
    at[1] = i32(column)
    return best, at


@op
def highest(X: f64[N]) -> f64[()]:
    best = empty((), f64)
    b = X[0]
    for i in range(1, N):
        b = X[i] if X[i] > b else b
    best[()] = b
    return best


@op
def in_chosen_rows(X: f32[M, N], chosen: f32[M], best: inout(f32[()]), at: inout(i32[()])):
    for i in range(M):
        if chosen[i] > 0.0:
            for j in range(N):
                if X[i, j] > best[()]:
                    best[()] = X[i, j]
                    at[()] = j


@op
def keeps_a_trace(X: f32[N], T: inout(f32[N])) -> i32[()]:
    result = empty((), i32)
    best, at = X[0], 0
    for i in range(N):
        if X[i] > best:
            best = X[i]
            at = i
        T[i] = best
    result[()] = i32(at)
    return result


@op
def by_place(X: f32[M, N]) -> (i32[M], i32[M]):
    """The place alone is kept, and compared by what stands there: in rows from their second element on, and in a
    column from the first."""
    low, high = empty(M, i32), empty(M, i32)
    for i in range(M):
        a = 0
        for j in range(1, N):
            if X[i, j] < X[i, a]:
                a = j
        b = 0
        for k in range(M):
            if X[b, i] < X[k, i]:
                b = k
        low[i] = i32(a)
        high[i] = i32(b)
    return low, high


@op
def from_another_place(X: f32[N]) -> i32[()]:
    """Not from the first element on, and with what changes on the way."""
    best = empty((), i32)
    b = 1
    for j in range(2, N):
        if X[j] > X[b]:
            b = j
    c = 0
    for j in range(1, N):
        if X[j] > X[c]:
            c = j - 1
    best[()] = i32(b * 1000 + c)
    return best


@op
def under_a_condition_of_the_loop(X: f32[M, N]) -> i32[M]:
    """The loop begins and ends where a condition says it."""
    R = empty((M,), i32)
    for i in range(M):
        b = 0
        for j in range(N):
            if 1 <= j and j < N - 1:
                if X[i, j] > X[i, b]:
                    b = j
        R[i] = i32(b)
    return R


CASES: dict[Any, tuple[tuple[int, ...], ...]] = {
    largest: ((9, 37),),
    smallest_below_a_limit: ((5, 41), ()),
    highest: ((53,),),
    in_chosen_rows: ((6, 35), (6,), (), ()),
    keeps_a_trace: ((37,), (37,)),
    by_place: ((9, 37),),
    under_a_condition_of_the_loop: ((9, 37),),
    from_another_place: ((41,),),
}
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0]


def values(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal(shape)
    if kind == "ties":
        x = np.sign(x)
    if kind == "special":
        x = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), x)
    if kind == "zeros":
        x = np.where(rng.random(shape) < 0.5, 0.0, -0.0)
    return np.asarray(x)


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize("kind", ["random", "ties", "special", "zeros"])
@pytest.mark.parametrize("operator", CASES, ids=lambda o: o.fn.__name__)
@pytest.mark.parametrize("exact", [False, True])
def test_results(operator: Any, kind: str, backend: str, exact: bool) -> None:
    chosen = op(reassociate=not exact)(operator.fn)
    rng = np.random.default_rng()
    shapes = CASES[operator]
    sizes = dict(zip("MN" if len(shapes[0]) == 2 else "N", shapes[0], strict=True))
    scop = chosen.scop(**sizes)
    args = [values(s, kind, rng).astype(scop.arrays[n].dtype.np) for n, s in zip(scop.args, shapes, strict=True)]
    updated = [scop.arrays[n].kind == "inout" for n in scop.args]
    mine = [x.copy() if x.ndim or kept else x[()] for kept, x in zip(updated, args, strict=True)]
    out = chosen.python(*mine)
    out = () if out is None else out if isinstance(out, tuple) else (out,)
    wanted = [*(x for kept, x in zip(updated, mine, strict=True) if kept), *out]
    schedule = automatic(scop, host())
    got = back_ends.execute(schedule.scop, schedule.tree, args, backend)
    assert back_ends.difference(got, [np.asarray(x) for x in wanted], signs=exact) == ""


def reductions(operator: Any, **sizes: int) -> list[str | None]:
    return [s.reduction for s in operator.scop(**sizes).statements.values() if s.reduction]


def test_values_and_places_are_reductions() -> None:
    assert reductions(largest, M=9, N=37) == ["max", "min"]
    assert reductions(smallest_below_a_limit, M=5, N=41) == ["min", "min"]
    assert reductions(highest, N=53) == ["max"]
    assert reductions(in_chosen_rows, M=6, N=35) == ["max", "min"]


def test_a_value_that_others_read_on_the_way_stays_as_it_is() -> None:
    assert reductions(keeps_a_trace, N=37) == []


def test_a_place_alone_is_enough() -> None:
    assert reductions(by_place, M=9, N=37) == ["min", "min", "max", "min"]
    assert reductions(from_another_place, N=37) == ["max", "min"]  # (the second one keeps another number)


def test_a_place_that_its_type_cuts_stays_as_it_is() -> None:
    """Of 700 places eight bits hold the first 256 only."""

    @op
    def cut(X: f32[M, N]) -> u8[M]:
        at = empty(M, u8)
        for i in range(M):
            at[i] = u8(0)
            for j in range(1, N):
                if X[i, j] < X[i, at[i]]:
                    at[i] = u8(j)
        return at

    assert reductions(cut, M=5, N=700) == []
    x = np.random.default_rng(1).random((5, 700), np.float32)
    np.testing.assert_array_equal(cut(x), cut.python(x))


def test_symbolic_sizes() -> None:
    x = np.random.default_rng().standard_normal((7, 1000)).astype(np.float32)
    for n in (1000, 33, 2):
        best, at = largest(x[:, :n])
        np.testing.assert_array_equal(at, x[:, :n].argmax(1))
        np.testing.assert_array_equal(best, x[:, :n].max(1))


def test_a_condition_on_the_iterator_is_a_bound() -> None:
    assert reductions(under_a_condition_of_the_loop, M=3, N=9) == ["max", "min"]
