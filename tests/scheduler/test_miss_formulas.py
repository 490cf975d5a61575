"""Misses as formulas in the sizes, against a simulated cache at several sizes."""

from __future__ import annotations

import pytest
from test_misses import N, counted_misses, f32, transposed

from examples.matmul import matmul
from polyc import empty, op
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule

LINE = 16  # bytes: four numbers
WITHIN = 0.1


@op
def summed(X: f32[N, N]) -> f32[N]:
    Y = empty(N, f32)
    for i in range(N):
        Y[i] = 0.0
        for j in range(N):
            Y[i] += X[j, i]
    return Y


def check(operator: object, sizes: dict[str, int]) -> int:
    """Each case in a cache in which it clearly holds, and the one before it clearly does not; how many there were."""
    scop = operator.scop()  # type: ignore[attr-defined]
    fixed = Schedule.start(specialise(scop, sizes))
    before, seen = 1 << 40, 0
    for case in Schedule.start(scop).miss_formulas(LINE):
        # Loops at their first iteration.
        touched = 3 if case.touched is None else case.touched({n: sizes.get(n, 0) for n in case.touched.names})
        room = -(-touched * 5 // 4)
        if before >= 2 * room:
            found = sum(counted_misses(fixed, room * LINE, LINE).values())
            said = sum(f(sizes) for f in case.fetched.values())
            assert abs(said - found) <= WITHIN * found, (sizes, room, str(case), found)
            seen += 1
        before = touched
    return seen


@pytest.mark.parametrize("sizes", [{"M": 12, "N": 16, "K": 20}, {"M": 9, "N": 24, "K": 40}, {"M": 5, "N": 64, "K": 11}])
def test_products(sizes: dict[str, int]) -> None:
    assert check(matmul, sizes) >= 2


@pytest.mark.parametrize("n", [16, 24, 40, 64])
def test_a_transposition(n: int) -> None:
    assert check(transposed, {"N": n}) >= 2


@pytest.mark.parametrize("n", [16, 40, 64])
def test_sums_of_columns(n: int) -> None:
    assert check(summed, {"N": n}) >= 2


def test_the_closed_forms() -> None:
    cases = Schedule.start(matmul.scop()).miss_formulas(64)
    assert [c.loop for c in cases] == ["i", "j", None]
    assert str(cases[1].fetched["B"]) == "K*M*((N + 15)//16)"
    assert str(cases[0].fetched["B"]) == "K*((N + 15)//16)"
