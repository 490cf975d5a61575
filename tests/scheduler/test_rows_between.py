"""Two products with passes over rows between them (attention) run as one nest, a block of rows at a time."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, assignment"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyc import empty, exp, f32, grid, op
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

Sizes = tuple[int, int, int, int, int]


def attention(h: int, n: int, m: int, d: int, e: int, in_place: bool) -> Any:
    """`softmax(Q K / 4 + B) V`: `h` heads, `n` queries, `m` keys, of `d` and `e` elements."""

    @op
    def softmax_between(Q: f32[h, n, d], K: f32[h, d, m], B: f32[m], V: f32[h, m, e]) -> f32[h, n, e]:
        S, T, O = empty((h, n, m), f32), empty((h, n, m), f32), empty((h, n, e), f32)
        P = T
        if not in_place:
            P = empty((h, n, m), f32)
        for b, i, j in grid(h, n, m):
            S[b, i, j] = 0.0
            for k in range(d):
                S[b, i, j] += Q[b, i, k] * K[b, k, j]
        for b, i, j in grid(h, n, m):
            T[b, i, j] = S[b, i, j] * 0.25 + B[j]
        for b, i in grid(h, n):
            top, total = f32(float("-inf")), f32(0.0)
            for j in range(m):
                top = max(top, T[b, i, j])
            for j in range(m):
                P[b, i, j] = exp(T[b, i, j] - top)
                total += P[b, i, j]
            for j in range(m):
                P[b, i, j] = P[b, i, j] / total
        for b, i, j in grid(h, n, e):
            O[b, i, j] = 0.0
            for k in range(m):
                O[b, i, j] += P[b, i, k] * V[b, k, j]
        return O

    return softmax_between


def data(sizes: Sizes) -> tuple[list[np.ndarray], np.ndarray]:
    h, n, m, d, e = sizes
    rng = np.random.default_rng()
    q, k, b, v = (rng.standard_normal(s).astype(np.float32) for s in ((h, n, d), (h, d, m), (m,), (h, m, e)))
    s = (q.astype(np.float64) @ k) * 0.25 + b
    p = np.exp(s - s.max(-1, keepdims=True))
    return [q, k, b, v], (p / p.sum(-1, keepdims=True)) @ v


def one_nest(schedule: Schedule) -> bool:
    return any("one nest" in str(note) for note in schedule.notes)


@pytest.mark.parametrize("sizes, in_place, threads", [
    ((3, 61, 70, 17, 24), False, 1), ((2, 197, 197, 16, 16), True, 2), ((1, 49, 1030, 8, 40), True, 1),
])  # fmt: skip
def test_attention_is_one_nest(sizes: Sizes, in_place: bool, threads: int) -> None:
    operator = attention(*sizes, in_place=in_place)
    scop = operator.scop()
    schedule = automatic(scop, targets.get(None), threads)
    assert one_nest(schedule), [str(n) for n in schedule.notes]
    given, expected = data(sizes)
    got = compile_kernel(schedule.scop, schedule.tree, threads=threads)(*given)
    np.testing.assert_allclose(got, expected, 1e-4, 1e-5)


def test_rows_that_do_not_stay_near_are_declined() -> None:
    length = targets.get(None).l2 // 8
    schedule = automatic(attention(1, 12, length, 8, 16, in_place=True).scop(), targets.get(None))
    assert not one_nest(schedule)
    assert any("rows of unknown or too many scores" in str(n) for n in schedule.notes)


def test_scores_that_are_a_result_stay_apart() -> None:
    """Somebody else reads them: they are no local array."""
    h, n, m = 2, 50, 60

    @op
    def both(Q: f32[h, n, 8], K: f32[h, 8, m], V: f32[h, m, 16]) -> tuple[f32[h, n, m], f32[h, n, 16]]:
        S, P, O = empty((h, n, m), f32), empty((h, n, m), f32), empty((h, n, 16), f32)
        for b, i, j in grid(h, n, m):
            S[b, i, j] = 0.0
            for k in range(8):
                S[b, i, j] += Q[b, i, k] * K[b, k, j]
        for b, i in grid(h, n):
            top = f32(float("-inf"))
            for j in range(m):
                top = max(top, S[b, i, j])
            for j in range(m):
                P[b, i, j] = exp(S[b, i, j] - top)
        for b, i, j in grid(h, n, 16):
            O[b, i, j] = 0.0
            for k in range(m):
                O[b, i, j] += P[b, i, k] * V[b, k, j]
        return S, O

    assert not one_nest(automatic(both.scop(), targets.get(None)))
