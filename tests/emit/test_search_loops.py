"""Loops that data end skip runs of iterations in which nothing is found."""

from __future__ import annotations

from typing import Any

import back_ends
import numpy as np
import pytest

from polyc import dims, empty, f32, i32, inout, op
from polyc.emit.loop_ir.loops import For, HReduce, If, walk

N, M = dims("N M")


@op
def first_above(a: f32[N], t: f32) -> f32[2]:
    out = empty((2,), f32)
    index = -2
    value = f32(-1.0)
    for i in range(N):
        if a[i] > t:
            index = i
            value = a[i]
            break
    out[0] = value
    out[1] = f32(index)
    return out


@op
def first_of_both(a: f32[N], t: f32, b: i32[N]) -> f32[2]:
    out = empty((2,), f32)
    index = -1
    for i in range(3, N - 2):
        if a[i + 1] > t and b[i] * 2 > i + b[i + 2]:
            index = i
            break
    out[0] = f32(index)
    out[1] = t
    return out


@op
def first_in_each_row(a: f32[M, N], t: f32) -> f32[M]:
    out = empty((M,), f32)
    for r in range(M):
        out[r] = -1.0
        for i in range(N):
            if a[r, i] > t:
                out[r] = f32(i)
                break
    return out


@op
def works_until_found(a: inout(f32[N]), t: f32):
    for i in range(N):
        if a[i] > t:
            break
        a[i] = a[i] * 2.0


@op
def changes_what_it_asks(a: inout(f32[N]), t: f32):
    for i in range(1, N):
        if a[i - 1] > t:
            a[i] = t + 1.0
            if a[i] > 2.0 * t:
                break


CASES = (first_above, first_of_both, first_in_each_row, works_until_found, changes_what_it_asks)


def runs(operator: Any, n: int) -> list[If]:
    """The questions about whole runs."""
    scop = operator.scop(**{s: n if s == "N" else 3 for s in sizes(operator)})
    fn = back_ends.finished(scop, scop.tree)
    loops = [s for s in walk(fn.body) if isinstance(s, For)]
    return [s.body for s in loops if isinstance(s.body, If) and isinstance(s.body.cond, HReduce)]


def sizes(operator: Any) -> tuple[str, ...]:
    return ("N", "M") if operator is first_in_each_row else ("N",)


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize("n", (5, 32, 161))
@pytest.mark.parametrize("operator", CASES, ids=lambda o: o.fn.__name__)
def test_results(operator: Any, n: int, backend: str) -> None:
    scop = operator.scop(**{s: n if s == "N" else 3 for s in sizes(operator)})
    rng = np.random.default_rng()
    for t in (-1.0, 0.5, 0.95, 0.999, 2.0):
        args: list[Any] = [rng.uniform(0, 1, (3, n) if operator is first_in_each_row else n).astype("f"), np.float32(t)]
        if operator is first_of_both:
            args.append(rng.integers(0, n, n).astype(np.int32))
        mine = [x.copy() for x in args]
        out = operator.python(*mine)
        expected = [out] if scop.results else mine[:1]
        got = back_ends.execute(scop, scop.tree, args, backend)
        assert back_ends.difference(got, expected) == "", t


@pytest.mark.parametrize("operator", (first_above, first_of_both, first_in_each_row))
def test_runs_are_asked_at_once(operator: Any) -> None:
    assert len(runs(operator, 1000)) == 1


@pytest.mark.parametrize("operator", (works_until_found, changes_what_it_asks))
def test_iterations_that_work_are_not_skipped(operator: Any) -> None:
    assert not runs(operator, 1000)
