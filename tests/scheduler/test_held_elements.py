"""Elements that a loop with an early end updates are scalars in it: results and errors stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import BoundsError, op
from polyc.emit import targets
from polyc.poly.rewriting.held_elements import with_held_elements
from polyc.scheduler.strategies.auto import automatic

HEAD = """
from polyc import *
N, M = dims("N M")

@op
def program(X: f32[N, M], I: i64[N], R: inout(i32[N + 1, M]), S: inout(f32[N, M])):
    for i in range(N):
        for j in range(M):
"""
HELD = {
    "a count": """
            R[i, j] = 0
            x = X[i, j]
            while x * x < 50.0 and R[i, j] < 20:
                x = x * 1.5
                R[i, j] += 1
""",
    "all of the state": """
            S[i, j] = X[i, j]
            R[i + 1, j] = 3
            while S[i, j] * S[i, j] < 50.0 and R[i + 1, j] < 20:
                S[i, j] = S[i, j] * 1.5
                R[i + 1, j] = R[i + 1, j] + 1
""",
    "what was there": """
            while R[i, j] < 9:
                R[i, j] += 2
                if X[i, j] > 0:
                    S[i, j] -= X[i, j]
""",
    "a break": """
            for k in range(12):
                if S[i, j] > 2.0:
                    break
                S[i, j] = S[i, j] * 2.0 + X[i, j]
                R[i, j] += 1
""",
    "a loop inside": """
            while R[i, j] < 9:
                for k in range(3):
                    R[i, j] += i32(X[i, k] > 0)
                R[i, j] += 1
""",
    "a loop below a condition of the loops": """
            if j > i:
                while R[i, j] < 9:
                    R[i, j] += 1
""",
    "one element for all": """
            while S[0, 0] < 100.0:
                S[0, 0] = S[0, 0] * 1.5 + 1.0
                if S[0, 0] > X[i, j]:
                    break
""",
}
STAYS = {
    "two elements": """
            while R[i, j] + R[i + 1, j] < 9:
                R[i, j] += 1
""",
    "the loop moves it": """
            k = 0
            while k < M and R[i, k] < 9:
                R[i, k] = 9
                k += 1
""",
    "read elsewhere": """
            while R[i, j] < 9:
                R[I[i], j] += 1
""",
    "a sum over all": """
            k = 0
            while k < 3 and X[i, j] > 0:
                R[0, 0] += 1
                k += 1
""",
    "below a condition": """
            if X[i, j] > 0:
                while R[i, j] < 9:
                    R[i, j] += 1
""",
}


def made(body: str) -> Any:
    """The operator."""
    return op.from_source(HEAD + body)


def given() -> list[np.ndarray]:
    """Arguments, new ones each time."""
    rng = np.random.default_rng()
    floats = rng.uniform(-2, 2, (2, 7, 19)).astype(np.float32)
    return [floats[0], np.arange(7), rng.integers(0, 5, (8, 19)).astype(np.int32), floats[1]]


@pytest.mark.parametrize("name", [*HELD, "below a condition", "a sum over all", "the loop moves it"])
def test_results(name: str) -> None:
    f, values = made({**HELD, **STAYS}[name]), given()
    expected = [a.copy() for a in values]
    f.python(*expected)
    for scop in (f.scop(), f.scop(N=7, M=19)):
        new = with_held_elements(scop)
        assert (new is scop) == (name in STAYS)
        schedule = automatic(scop, targets.host())
        for made_of, tree in ((new, new.tree), (schedule.scop, schedule.tree)):
            runs = [interpret(made_of, tree, values), *(native(made_of, tree, values, b) for b in NATIVE)]
            for found in runs:
                for a, b in zip(found, expected[2:], strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    scop = made(STAYS[name]).scop()
    assert with_held_elements(scop) is scop


def test_errors_stay() -> None:
    f = made("""
            while R[i, j] < 9:
                R[i, j] += 1
                S[i, j] = X[I[i], j]
    """)
    values = given()
    values[1][3] = 7
    with pytest.raises(BoundsError, match="X"):
        f(*values)
    values[2][3] = 9
    expected = [a.copy() for a in values]
    f.python(*expected)
    f(*values)
    np.testing.assert_array_equal(values[3], expected[3])
