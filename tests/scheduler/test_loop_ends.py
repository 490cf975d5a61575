"""Breaks at a comparison of the loop's iterator are ends of the loop: results and errors stay."""

from __future__ import annotations

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import BoundsError, op
from polyc.emit import targets
from polyc.poly.rewriting.loop_ends import with_ends
from polyc.scheduler.strategies.auto import automatic

HEAD = """
from polyc import *
N, M, Z = dims("N M Z")

@op
def program(P: i64[N + 1], I: i64[Z], V: inout(f32[Z]), Y: inout(f32[N]), R: inout(i32[N])):
"""
ENDS = {
    "a break": """
    for i in range(N):
        for p in range(P[i], Z):
            if p >= P[i + 1]:
                break
            Y[i] += V[p]
""",
    "a break and what is passed over": """
    for i in range(N):
        s = f32(0)
        for p in range(Z):
            if p < P[i]:
                continue
            if P[i + 1] <= p:
                break
            if V[p] > 0.0:
                s += V[p]
            R[i] += 1
        Y[i] = s
""",
    "one end": """
    for i in range(N):
        for p in range(3, Z):
            if p > P[i]:
                break
            Y[i] += V[p]
""",
    "only where a condition holds": """
    for i in range(N):
        for p in range(Z):
            if V[p] > 0.0:
                if p >= P[i]:
                    break
                Y[i] += V[p]
""",
    "a loop inside": """
    for i in range(N):
        for p in range(Z):
            if not p < P[i]:
                break
            for k in range(3):
                Y[i] += V[p] * k
""",
    "a loop inside that data bound": """
    for i in range(N):
        for p in range(Z):
            if p >= P[i]:
                break
            for k in range(P[i] % 4):
                Y[i] += V[p] * k
""",
    "a flag of the program": """
    for i in range(N):
        done = False
        for p in range(Z):
            if not done:
                done = p >= P[i]
            if not done:
                Y[i] += V[p]
""",
}
STAYS = {
    "the flag is for all rows": """
    done = False
    for i in range(N):
        for p in range(Z):
            if not done:
                done = p >= P[i]
            if not done:
                Y[i] += V[p]
""",
    "some are done before": """
    for i in range(N):
        for p in range(Z):
            Y[i] += V[p]
            if p >= P[i]:
                break
""",
    "the number changes": """
    for i in range(N):
        for p in range(Z):
            if p >= R[i] + 2:
                break
            Y[i] += V[p]
            R[i] += 1
""",
    "the flag is read later": """
    for i in range(N):
        for p in range(Z):
            if p >= P[i]:
                R[i] = 9
                break
            Y[i] += V[p]
        else:
            R[i] = 7
""",
    "another condition": """
    for i in range(N):
        for p in range(Z):
            if p >= P[i] or V[p] < -1.0:
                break
            Y[i] += V[p]
""",
    "not there for all": """
    for i in range(N):
        for p in range(Z):
            if V[p] > 0.0:
                if p >= P[i]:
                    break
            Y[i] += V[p]
""",
    "equal": """
    for i in range(N):
        for p in range(Z):
            if p == P[i]:
                break
            Y[i] += V[p]
""",
}


def given() -> list[np.ndarray]:
    """Segments of random lengths."""
    rng = np.random.default_rng()
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 7, 19))])
    starts[[4, 9]] = starts[[9, 4]]
    count = int(starts.max()) + 2
    floats = rng.uniform(-2, 2, count).astype(np.float32)
    return [starts, rng.integers(0, count, count), floats, np.zeros(19, np.float32), np.zeros(19, np.int32)]


@pytest.mark.parametrize("name", [*ENDS, *STAYS])
def test_results(name: str) -> None:
    f, values = op.from_source(HEAD + {**ENDS, **STAYS}[name]), given()
    expected = [a.copy() for a in values]
    f.python(*expected)
    scop = f.scop()
    new = with_ends(scop, set())
    assert (new is scop) == (name in STAYS)
    schedule = automatic(scop, targets.host())
    for made_of, tree in ((new, new.tree), (schedule.scop, schedule.tree)):
        for found in (interpret(made_of, tree, values), *(native(made_of, tree, values, b) for b in NATIVE)):
            for a, b in zip(found, expected[2:], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_errors_stay() -> None:
    f = op.from_source(
        HEAD
        + """
    for i in range(N):
        for p in range(Z + 3):
            if p >= P[i]:
                break
            Y[i] += V[I[p]]
"""
    )
    values = given()
    values[0][:] = 5
    f(*values)
    values[0][3] = len(values[1]) + 1
    with pytest.raises(BoundsError, match="I"):
        f(*values)
