"""`while` loops that count up to a number are loops over a range: results and errors stay."""

from __future__ import annotations

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import BoundsError, op
from polyc.emit import targets
from polyc.poly.rewriting.counted_loops import with_counted_loops
from polyc.scheduler.strategies.auto import automatic

HEAD = """
from polyc import *
N, M, Z = dims("N M Z")

@op
def program(P: i64[N + 1], I: i32[Z], V: inout(f32[Z]), Y: inout(f32[N]), R: inout(i32[N])):
"""
COUNTED = {
    "a segment": """
    for i in range(N):
        p = P[i]
        while p < P[i + 1]:
            Y[i] += V[p] * V[I[p]]
            p += 1
""",
    "turned, the number read later": """
    for i in range(N):
        p = P[i]
        s = f32(0)
        while not P[i + 1] <= p:
            if V[p] > 0.0:
                s += V[p]
            p = p + 1
        Y[i] = s
        R[i] = i32(p)
""",
    "goes on in the next row": """
    p = 0
    for i in range(N):
        while p < P[i]:
            Y[i] += V[p]
            p += 1
        R[i] = i32(p)
""",
    "a loop inside": """
    for i in range(N):
        p = 2
        while p <= P[i] - 3:
            for k in range(p):
                Y[i] += V[p] + k
            p += 1
""",
    "a range of the sizes": """
    i = 0
    while i < N:
        p = i // 2
        while p < i + 3:
            Y[i] += V[p]
            p += 1
        i += 1
""",
    "each element is written": """
    for i in range(N):
        p = P[i]
        while p < P[i + 1]:
            V[p] = 2.0 * V[p] + i
            p += 1
""",
}
STAYS = {
    "two steps": """
    for i in range(N):
        p = P[i]
        while p < P[i + 1]:
            Y[i] += V[p]
            p += 2
""",
    "used after it has moved": """
    for i in range(N):
        p = P[i]
        while p < P[i + 1]:
            p += 1
            Y[i] += V[p]
""",
    "another condition": """
    for i in range(N):
        p = P[i]
        while p < P[i + 1] and V[p] > 0.0:
            Y[i] += V[p]
            p += 1
""",
    "the end moves": """
    for i in range(N):
        p = P[i]
        while p < R[i] + 4:
            R[i] += p % 2
            p += 1
""",
    "a step on a condition": """
    for i in range(N):
        p = P[i]
        k = 0
        while p < P[i + 1]:
            Y[i] += V[p]
            k += 1
            if k > 1:
                p += 1
""",
}


def given() -> list[np.ndarray]:
    """Segments of random lengths, one of them backwards."""
    rng = np.random.default_rng()
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 7, 19))])
    starts[[4, 9]] = starts[[9, 4]]
    count = int(starts.max()) + 9
    floats = rng.uniform(-2, 2, count).astype(np.float32)
    inputs = [starts, rng.integers(0, count, count).astype(np.int32), floats]
    return [*inputs, np.zeros(19, np.float32), np.zeros(19, np.int32)]


@pytest.mark.parametrize("name", [*COUNTED, *STAYS])
def test_results(name: str) -> None:
    f, values = op.from_source(HEAD + {**COUNTED, **STAYS}[name]), given()
    expected = [a.copy() for a in values]
    f.python(*expected)
    scop = f.scop()
    new = with_counted_loops(scop, set())
    assert (new is scop) == (name in STAYS)
    schedule = automatic(scop, targets.host())
    for made_of, tree in ((new, new.tree), (schedule.scop, schedule.tree)):
        for found in (interpret(made_of, tree, values), *(native(made_of, tree, values, b) for b in NATIVE)):
            for a, b in zip(found, expected[2:], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_errors_stay() -> None:
    f, values = op.from_source(HEAD + COUNTED["a segment"]), given()
    values[0][7] = len(values[2]) + 1
    values[0][6] = values[0][7] - 4
    with pytest.raises(BoundsError, match="V"):
        f(*values)
