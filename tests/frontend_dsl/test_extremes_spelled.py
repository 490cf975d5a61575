"""Searches for a largest or smallest value in all the ways that people write them: plain Python's results."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from back_ends import interpret

from polyc import op
from polyc.emit.targets import host
from polyc.scheduler.strategies.auto import automatic

HEAD = """
from polyc import *
N, M = dims("N M")

@op(reassociate={reassociate})
def search(X: {kind}[N, M], B: inout({kind}[N]), R: inout(i32[N])):
    for i in range(N):
"""
BODIES = {
    "values in scalars": """
        m, b = B[i], 7
        for j in {range}:
            if {test}:
                m = X[i, j]
                b = j
        B[i], R[i] = m, b
""",
    "values in arrays": """
        for j in {range}:
            if {test}:
                R[i] = j
                B[i] = X[i, j]
""",
    "the value alone": """
        for j in {range}:
            B[i] = X[i, j] if {test} else B[i]
""",
    "the place alone": """
        b = {start}
        for j in {range}:
            if {test}:
                b = j
        R[i] = b
""",
    "the place in an array": """
        for j in {range}:
            if {test}:
                R[i] = j
""",
}
BEST = {"values in scalars": "m", "the place alone": "X[i, b]", "the place in an array": "X[i, R[i]]"}
TESTS = ("{v} < {x}", "{v} <= {x}", "{x} < {v}", "{x} <= {v}", "not {v} < {x}", "not {v} >= {x}", "not {x} >= {v}")
RANGES = ("range(M)", "range(1, M)", "range(M - 1, -1, -1)", "range(M - 2, -1, -1)", "range(0, M, 2)")
KINDS = {"f32": np.float32, "i32": np.int32, "u8": np.uint8}


def made(body: str, test: str, loop: str, kind: str, reassociate: bool = True) -> Any:
    """The operator."""
    test = test.format(v="X[i, j]", x=BEST.get(body, "B[i]"))
    start = 0 if loop == "range(1, M)" else "M - 1" if "-1" in loop else "0"
    text = HEAD.format(kind=kind, reassociate=reassociate) + BODIES[body].format(range=loop, test=test, start=start)
    return op.from_source(text)


def given(kind: str, shape: tuple[int, int], numbers: bool) -> list[np.ndarray]:
    """Few values, so that many are equal; with `numbers`, all of them are numbers."""
    rng = np.random.default_rng()
    x = rng.integers(0, 5, shape).astype(KINDS[kind])
    first = rng.integers(0, 5, shape[0]).astype(KINDS[kind])
    if kind == "f32":
        x[rng.random(shape) < 0.1] = -0.0
        if not numbers:
            x[rng.random(shape) < 0.05], x[rng.random(shape) < 0.05] = np.nan, -np.inf
            first[rng.random(shape[0]) < 0.2] = np.nan
    return [x, first, rng.integers(0, shape[1], shape[0]).astype(np.int32)]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", KINDS)
def test_results(body: str, kind: str) -> None:
    rng = np.random.default_rng()
    cases = list(product(TESTS, RANGES, (True, False)))
    for k in rng.choice(len(cases), 5, replace=False):
        test, loop, reassociate = cases[k]
        f = made(body, test, loop, kind, reassociate)
        schedule = automatic(f.scop(), host())
        for shape in ((3, 1), (4, 2), (5, 33), (17, 64)):
            values = given(kind, shape, rng.random() < 0.3)
            expected = [a.copy() for a in values]
            f.python(*expected)
            found = [a.copy() for a in values]
            f(*found)
            where = f"{test}, {loop}, {reassociate}, {shape}"
            for run in (found[1:], interpret(schedule.scop, schedule.tree, values)):
                for a, b in zip(run, expected[1:], strict=True):
                    np.testing.assert_array_equal(a, b, err_msg=where)
            if not reassociate:
                np.testing.assert_array_equal(np.signbit(found[1]), np.signbit(expected[1]), err_msg=where)


@pytest.mark.parametrize("loop", ["range(M)", "range(M - 1, -1, -1)"])
@pytest.mark.parametrize("condition", ["j >= 1", "j > 0 and j < M - 1", "2 <= j <= M + 3"])
def test_a_condition_on_the_loop_is_its_bound(loop: str, condition: str) -> None:
    body = BODIES["the place alone"].format(range=loop, test="X[i, j] < X[i, b]", start=0)
    text = body.replace("if X", f"if {condition}:\n                if X").replace("    b = j", "        b = j")
    f = op.from_source(HEAD.format(kind="f32", reassociate=True) + text)
    assert not any(s.predicate is not None and "j" in s.iters for s in f.scop().statements.values())
    for shape in ((3, 1), (4, 2), (5, 33)):
        values = given("f32", shape, numbers=False)
        expected = [a.copy() for a in values]
        f.python(*expected)
        f(*values)
        np.testing.assert_array_equal(values[2], expected[2])


@pytest.mark.parametrize(("body", "test"), list(product(BODIES, ("{v} > {x}", "{v} >= {x}", "{x} <= {v}"))))
def test_all_are_reductions(body: str, test: str) -> None:
    statements = made(body, test, "range(1, M)", "f32").scop().statements.values()
    assert {s.reduction for s in statements if "j" in s.iters or "j_1" in s.iters} <= {"max", "min"}
    assert not any(s.predicate is not None and "j" in s.iters for s in statements)


def test_the_sign_of_a_zero_stays_where_order_counts() -> None:
    f = made("the value alone", "{v} >= {x}", "range(M)", "f32", reassociate=False)
    b = np.zeros(1, np.float32)
    f(np.array([[-0.0]], np.float32), b, np.zeros(1, np.int32))
    assert np.signbit(b[0])
    f = op.from_source("""
        from polyc import *
        N = dims("N")

        @op
        def clamped(X: f32[N]) -> f32[N]:
            Y = empty((N,), f32)
            for i in range(N):
                v = X[i]
                if v <= 0.0:
                    v = 0.0
                Y[i] = v
            return Y
    """)
    assert not np.signbit(f(np.array([-0.0, -1.0], np.float32))).any()


@pytest.mark.parametrize(("loop", "place"), [("range(M - 1, -1, -1)", 4), ("range(M)", 1), ("range(M - 1, -1, -2)", 3)])
def test_the_first_of_equal_values_is_the_first_one_visited(loop: str, place: int) -> None:
    f = made("values in scalars", "{v} < {x}", loop, "i32")
    values = [np.array([[3, 1, 1, 1, 1, 2]], np.int32), np.array([9], np.int32), np.array([0], np.int32)]
    f(*values)
    assert values[2] == place


def test_a_store_beside_the_condition_is_no_part_of_a_search() -> None:
    body = """
        for j in range(M):
            if X[i, j] > 0.0:
                B[i] = X[i, j]
            R[i] = j
"""
    f = op.from_source(HEAD.format(kind="f32", reassociate=True) + body)
    values = given("f32", (5, 9), numbers=True)
    expected = [a.copy() for a in values]
    f.python(*expected)
    f(*values)
    np.testing.assert_array_equal(values[1], expected[1])
