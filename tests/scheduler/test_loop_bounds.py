"""Conditions on a loop's iterator as its bounds: all spellings are one loop, results and errors stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import BoundsError, op
from polyc.emit import targets
from polyc.poly.rewriting.loop_bounds import with_bounds
from polyc.poly.tree import loop_names
from polyc.scheduler.strategies.auto import automatic

HEAD = """
from polyc import *
N, M, Z = dims("N M Z")

@op
def program(P: {kind}[N + 1], C: inout(i64[Z]), V: f32[Z], X: f32[M]) -> f32[N]:
    Y = zeros((N,), f32)
    for i in range(N):
        {before}
        for p in {loop}:
            if {condition}:
                {update}
    return Y
"""
KINDS = {"i64": np.int64, "i32": np.int32, "u8": np.uint8}
SPELLINGS = {
    "two comparisons": ("range(Z)", "P[i] <= p and p < P[i + 1]"),
    "a chain": ("range(Z)", "P[i] <= p < P[i + 1]"),
    "turned": ("range(Z)", "P[i + 1] > p and not P[i] > p"),
    "negated": ("range(Z)", "not (p < P[i] or p >= P[i + 1])"),
    "less or equal": ("range(Z)", "p > P[i] - 1 and p + 1 <= P[i + 1]"),
    "below by the loop": ("range(P[i + 1])", "p >= P[i]"),
    "above by the loop": ("range(P[i], Z)", "not p >= P[i + 1]"),
    "twice": ("range(P[i], P[i + 1])", "p >= P[i] and p < P[i + 1]"),
    "and another": ("range(Z)", "p >= P[i] and V[p] == V[p] and p < P[i + 1]"),
    "and an affine one": ("range(Z)", "not (p < P[i] or p < 1 or p >= P[i + 1])"),
    "in scalars": ("range(Z)", "lo <= p < hi"),
}
STAYS = {
    "one end": ("range(Z)", "p < P[i]", "Y[i] += V[p]"),
    "read outside": ("range(Z)", "p >= P[i] and p < P[i + 2]", "Y[i] += V[p]"),
    "changes": ("range(Z)", "C[0] <= p < P[i + 1]", "C[p] = 2"),
    "each another": ("range(Z)", "P[i] <= p < C[p]", "Y[i] += V[p]"),
    "error first": ("range(Z)", "V[p + 2] > 0 and P[i] <= p < P[i + 1]", "Y[i] += V[p]"),
    "wraps": ("range(Z)", "i32(P[i]) <= i32(p * p) < P[i + 1]", "Y[i] += V[p]"),
}


def made(loop: str, condition: str, kind: str = "i64", update: str = "Y[i] += V[p] * X[C[p]]") -> Any:
    """The operator."""
    before = "lo, hi = P[i], P[i + 1]" if "lo" in condition else "pass"
    text = HEAD.format(loop=loop, condition=condition, kind=kind, update=update, before=before)
    return op.from_source(text)


def given(rng: np.random.Generator, rows: int, kind: str = "i64") -> list[np.ndarray]:
    """Segments, some empty, and one that begins after its end."""
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 7, rows))])
    count = max(1, int(starts[-1]))
    if rows > 5:
        starts[3] = starts[5]
    floats = rng.standard_normal(count).astype(np.float32)
    return [starts.astype(KINDS[kind]), rng.integers(0, 5, count), floats, np.arange(1, 6, dtype=np.float32)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPELLINGS)
def test_one_loop(name: str, kind: str) -> None:
    f = made(*SPELLINGS[name], kind=kind)
    new = with_bounds(f.scop(), set())
    (s,) = [s for s in new.statements.values() if s.dynamic]
    assert (s.predicate is None) == (name != "and another")
    assert s.reduction == "+"
    rng = np.random.default_rng(7)
    for rows in (1, 4, 19, 32):
        arguments = given(rng, rows, kind)
        expected = f.python(*(a.copy() for a in arguments))
        np.testing.assert_allclose(f(*arguments), expected, rtol=1e-5, atol=1e-5)
        schedule = automatic(f.scop(), targets.host())
        for scop, tree in ((new, new.tree), (schedule.scop, schedule.tree)):
            found = [interpret(scop, tree, arguments)[-1], *(native(scop, tree, arguments, b)[-1] for b in NATIVE)]
            for y in found:
                np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    loop, condition, update = STAYS[name]
    scop = made(loop, condition, update=update).scop()
    assert with_bounds(scop, set()) is scop


def test_numbers_at_the_end_of_all() -> None:
    f = made("range(Z)", "p > P[i] and p <= P[i + 1]", update="Y[i] += V[p]")
    least, most = -(2**63), 2**63 - 1
    values = [np.array([least, most, most, least, 3]), np.zeros(9, np.int64), np.arange(9, dtype=np.float32)]
    values += [np.ones(1, np.float32)]
    np.testing.assert_array_equal(f(*values), f.python(*values))


def test_errors_stay() -> None:
    f = made("range(P[i + 1])", "p >= P[i]", update="Y[i] += V[p]")
    columns = np.zeros(9, np.int64)
    rest = [columns, np.ones(9, np.float32), np.ones(1, np.float32)]
    np.testing.assert_array_equal(f(np.array([20, 4, 4, 9, 9]), *rest), [0, 0, 5, 0])
    with pytest.raises(BoundsError, match="V"):
        f(np.array([0, 4, 10, 12, 9]), *rest)
    f(np.array([50, 40, 30, 20, 10]), *rest)  # (no iteration reads anything)
    f = made("range(Z)", "P[i] <= p < P[i + 1]")
    columns[6] = 3
    f(np.array([0, 4, 6, 6]), *rest)
    with pytest.raises(BoundsError, match="X"):
        f(np.array([0, 4, 6, 7]), *rest)


def test_two_statements_and_a_loop_inside() -> None:
    f = op.from_source("""
        from polyc import *
        N, M, Z = dims("N M Z")

        @op
        def segments(P: i64[N + 1], V: f32[Z, M]) -> (f32[N, M], i32[N]):
            Y, R = zeros((N, M), f32), zeros((N,), i32)
            for i in range(N):
                for p in range(Z):
                    if p >= P[i] and p < P[i + 1]:
                        R[i] += 1
                        for m in range(M):
                            Y[i, m] += V[p, m]
            return Y, R
    """)
    assert all(s.dynamic for s in with_bounds(f.scop(), set()).statements.values() if "p" in s.iters)
    rng = np.random.default_rng(1)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 20))])
    values = rng.standard_normal((starts[-1] + 3, 7)).astype(np.float32)
    for found, expected in zip(f(starts, values), f.python(starts, values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


BLOCKS = {
    "by its range": """
        for i in range(b, min(b + 8, N)):
            for p in range(P[i], P[i + 1]):
                for d in range(16):
                    Y[i, d] += V[p] * X[C[p], d]
""",
    "by a condition": """
        for i in range(min(b + 8, N)):
            if i >= b:
                for p in range(P[i], P[i + 1]):
                    for d in range(16):
                        Y[i, d] += V[p] * X[C[p], d]
""",
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_around_a_loop_that_data_bound_are_undone(name: str) -> None:
    f = op.from_source(f"""
from polyc import *
N, M, Z = dims("N M Z")

@op
def blocks(P: i64[N + 1], C: i64[Z], V: f32[Z], X: f32[M, 16]) -> f32[N, 16]:
    Y = zeros((N, 16), f32)
    for b in range(0, N, 8):{BLOCKS[name]}
    return Y
""")
    assert not any(n.startswith("b") for n in loop_names(automatic(f.scop(), targets.host()).tree))
    starts, columns, values, _ = given(np.random.default_rng(3), 19)
    x = np.random.default_rng(4).random((5, 16)).astype(np.float32)
    np.testing.assert_allclose(f(starts, columns, values, x), f.python(starts, columns, values, x), rtol=1e-5)
