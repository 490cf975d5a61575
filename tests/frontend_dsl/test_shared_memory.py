"""Arguments that share memory: plain Python and the compiled run treat them alike, whatever overlaps what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc import ArgumentError, dims, empty, f32, i64, inout, op
from polyc.poly.aliasing import folded, overlap

M, N, K = dims("M N K")


@op
def shift(A: inout(f32[N]), B: f32[N]):
    for i in range(N - 1):
        A[i + 1] = B[i] + A[i]


@op
def both(A: inout(f32[N]), B: inout(f32[M]), C: f32[K]) -> f32[K]:
    R = empty((K,), f32)
    for i in range(N):
        A[i] += 1.0
    for i in range(M):
        B[i] = B[i] * 2.0
    for i in range(K):
        R[i] = C[i] + 0.5
    return R


@op
def gathered(A: inout(f32[M, N]), B: f32[M, N], scale: f32):
    for i in range(M):
        for j in range(N):
            A[M - 1 - i, j] = B[i, N - 1 - j] * scale


def outcome(call, *args):
    """What a call does: its result, or the text of its refusal."""
    try:
        result = call(*args)
    except ArgumentError as error:
        return str(error)
    return None if result is None else result.tobytes()


def alike(operator, arrays_of) -> None:
    """Run in both ways on the same views of fresh memory; results, refusals and all memory must be equal."""
    memory = np.arange(40, dtype=np.float32)
    first, second = memory.copy(), memory.copy()
    expected = outcome(operator.python, *arrays_of(first))
    found = outcome(operator, *arrays_of(second))
    assert found == expected
    assert np.array_equal(first, second)
    if isinstance(found, str):
        assert np.array_equal(first, memory)


def test_the_same_array_twice() -> None:
    alike(shift, lambda m: (m[:6], m[:6]))
    a = np.ones(5, np.float32)
    shift.python(a, a)
    assert np.array_equal(a, [1, 2, 3, 4, 5])


def test_two_arrays_in_place_must_not_overlap() -> None:
    for view in (lambda m: (m[:6], m[3:9], m[20:24]), lambda m: (m[:6], m[:6], m[:6])):
        memory = np.arange(40, dtype=np.float32)
        for call in (both, both.python):
            with pytest.raises(ArgumentError, match="^both: 'A' and 'B' are both written, but share memory$"):
                call(*view(memory))
    alike(both, lambda m: (m[:6], m[6:9], m[4:8]))


def test_calls_inside_operators_share_their_arrays() -> None:
    """Inlined when compiled: the array itself is passed, in plain Python too."""

    @op
    def outer(A: inout(f32[N])):
        shift(A, A)

    alike(outer, lambda m: (m[:6],))


views = st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from([1, 1, 1, 2, 3, -1, -2]))


def view_of(memory: np.ndarray, start: int, stop: int, step: int) -> np.ndarray:
    low, high = min(start, stop), max(start, stop)
    return memory[low:high][::step]


@settings(max_examples=150, deadline=None)
@given(views, views, views)
def test_random_overlaps(a, b, c) -> None:
    alike(both, lambda m: (view_of(m, a[0], a[1], 1), view_of(m, b[0], b[1], 1), view_of(m, *c)))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 8), st.integers(0, 8), st.integers(0, 3), st.integers(0, 4), st.sampled_from([1, -1]), st.booleans()
)
def test_random_matrices(first, second, rows, columns, step, turned) -> None:
    def arrays(m):
        a = m[first : first + rows * columns].reshape(rows, columns)
        b = m[second : second + rows * columns]
        b = b.reshape(columns, rows).T if turned else b.reshape(rows, columns)
        return a, b[::step], 2.0

    alike(gathered, arrays)


def test_overlap_is_exact_where_it_can_be() -> None:
    a = np.zeros(20, np.float32)
    assert not overlap(a[::2], a[1::2]) and overlap(a[::2], a[2:5]) and not overlap(a[:0], a)
    assert not overlap(a[:5], a[5:]) and overlap(a, a[::-1])


def test_elements_that_share_memory() -> None:
    a = np.zeros((4, 5), np.float32)
    fine = (a, a.T, a[::-1, ::2], a[:0], a[None], np.zeros(()), np.broadcast_to(a[:1, :1], (1, 1)))
    assert not any(map(folded, fine))
    windows = np.lib.stride_tricks.sliding_window_view(a[0], 2)
    assert folded(windows) and folded(np.broadcast_to(a[0], (3, 5))) and not folded(np.broadcast_to(a, (0, 4, 5)))


def test_index_arrays_are_inputs_too() -> None:
    @op
    def scatter(A: inout(i64[N]), I: i64[N]):
        for i in range(N):
            A[I[i]] = i

    memory = np.array([3, 2, 1, 0])
    first, second = memory.copy(), memory.copy()
    scatter(first, first)
    scatter.python(second, second)
    assert np.array_equal(first, second)
