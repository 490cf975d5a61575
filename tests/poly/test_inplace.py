"""In place or not: against running the program on shared memory."""

# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

import numpy as np
import pytest
from execute import execute
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc import dims, empty, f32, grid, i64, op
from polyc.poly.errors import ScopError
from polyc.poly.expr import loads
from polyc.poly.inplace import clash, merged
from polyc.poly.quota import quota
from polyc.poly.scop import Scop
from polyc.poly.verify import verify

N = dims("N")


def shifted(n: int, m: int, a: int, b: int, reverse: bool, flip: bool) -> Scop:
    """`Y[i, j] = X[i + a, j + b]` clipped to the array, in either order of rows, perhaps mirrored."""

    @op
    def program(X: f32[n, m]) -> f32[n, m]:
        Y = empty((n, m), f32)
        for i in range(n - 1, -1, -1) if reverse else range(n):
            for j in range(m):
                Y[i, j] = X[min(max(i + a, 0), n - 1), min(max((m - 1 - j if flip else j) + b, 0), m - 1)] + 1.0
        return Y

    return program.scop()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(-1, 1), st.integers(-1, 1), st.booleans(), st.booleans())
def test_the_answer_is_what_shared_memory_does(n: int, m: int, a: int, b: int, reverse: bool, flip: bool) -> None:
    scop = shifted(n, m, a, b, reverse, flip)
    x = np.arange(n * m, dtype=np.float32).reshape(n, m) * 7 + 1
    expected = execute(scop, {"X": x})["Y"]
    problem = clash(scop, "X", "Y")
    if problem is None:
        one = merged(scop, "X", "Y")
        verify(one)
        assert one.results == () and one.arrays["X"].kind == "inout"
        np.testing.assert_array_equal(execute(one, {"X": x})["X"], expected)
        return
    # The witness is real: the writer comes before the reader, and both touch that element.
    assert problem.writer is not None and problem.reader is not None
    i, j = problem.element
    ri, rj = problem.reader[1]
    rows = [n - 1 - k if reverse else k for k in range(n)]
    assert (rows.index(i), j) < (rows.index(ri), rj)
    read = (min(max(ri + a, 0), n - 1), min(max((m - 1 - rj if flip else rj) + b, 0), m - 1))
    assert read == (i, j)
    with pytest.raises(ScopError, match="before"):
        merged(scop, "X", "Y")


def test_a_stencil_is_refused_with_the_clashing_elements() -> None:
    @op
    def stencil(X: f32[8]) -> f32[8]:
        Y = empty((8,), f32)
        for i in range(8):
            Y[i] = X[i]
            if i >= 1:
                Y[i] = X[i - 1] + X[i]
        return Y

    problem = clash(stencil.scop(), "X", "Y")
    assert problem is not None and "writes Y[" in str(problem) and "reads what lies there in X" in str(problem)


def test_another_shape_of_the_same_memory() -> None:
    @op
    def flat(X: f32[3, 4], B: f32[4]) -> f32[12]:
        Y = empty((12,), f32)
        for i, j in grid(3, 4):
            Y[4 * i + j] = X[i, j] * B[j]
        return Y

    @op
    def turned(X: f32[3, 4]) -> f32[4, 3]:
        Y = empty((4, 3), f32)
        for i, j in grid(4, 3):
            Y[i, j] = X[j, i]
        return Y

    assert clash(flat.scop(), "X", "Y") is None
    assert "before" in str(clash(flat.scop(), "B", "Y"))
    assert clash(turned.scop(), "X", "Y") is not None


def kept(rows: int, width: int, new: int) -> Scop:
    """Some rows stay, those behind become 0, some are replaced where a table says."""

    @op
    def program(X: f32[rows, width], U: f32[new, width], J: i64[new], n: i64[1]) -> f32[rows, width]:
        Y = empty((rows, width), f32)
        for i, j in grid(rows, width):
            Y[i, j] = X[i, j] if i < n[0] else 0.0
        for i, j in grid(new, width):
            Y[min(max(J[i], 0), rows - 1), j] = U[i, j]
        return Y

    return program.scop()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 6), st.data())
def test_what_stays_is_not_stored(rows: int, width: int, stay: int, data: st.DataObject) -> None:
    new = data.draw(st.integers(1, 3))
    scop = kept(rows, width, new)
    assert clash(scop, "X", "Y", every_order=True) is None  # two stores to one element keep their order anyway
    one = merged(scop, "X", "Y")
    verify(one)
    x = np.arange(rows * width, dtype=np.float32).reshape(rows, width) + 1
    u = -np.arange(new * width, dtype=np.float32).reshape(new, width) - 1
    at = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=new, max_size=new)), np.int64)
    feeds = {"X": x, "U": u, "J": at, "n": np.array([stay])}
    np.testing.assert_array_equal(execute(one, feeds)["X"], execute(scop, feeds)["Y"])
    (zeros, replaced) = one.statements.values()
    assert "if not i < n[0]: X[i, j] = 0.0" in str(one)
    assert all(load.array != "X" for s in (zeros, replaced) for load in loads(s.value))


def test_choices_within_a_row_stay_and_a_copy_stays() -> None:
    @op
    def chosen(X: f32[4, 6], A: f32[4, 6]) -> f32[4, 6]:
        Y = empty((4, 6), f32)
        for i, j in grid(4, 6):
            Y[i, j] = X[i, j] if A[i, j] > 0.0 else A[i, j]
        return Y

    @op
    def copied(X: f32[4, 6]) -> f32[4, 6]:
        Y = empty((4, 6), f32)
        for i, j in grid(4, 6):
            Y[i, j] = X[i, j]
        return Y

    for one in (merged(chosen.scop(), "X", "Y"), merged(copied.scop(), "X", "Y")):
        (statement,) = one.statements.values()
        assert statement.predicate is None and any(load.array == "X" for load in loads(statement.value))


def test_sums_into_one_element_bind_nobody() -> None:
    """Updates of a reduction may change places: one that reads an operand binds those that overwrite it."""

    @op
    def added(X: f32[6], A: f32[6, 6]) -> f32[6]:
        Y = empty((6,), f32)
        for i in range(6):
            Y[i] = 0.0
        for i in range(6):
            for k in range(6):
                Y[i] += X[i] * A[i, k]
        return Y

    assert clash(added.scop(), "X", "Y") is not None
    assert clash(added.scop(), "X", "Y", every_order=True) is not None


def test_every_order_allows_chains_and_refuses_what_would_bind_the_scheduler() -> None:
    @op
    def chain(X: f32[4, 6], B: f32[6]) -> f32[4, 6]:
        T = empty((4, 6), f32)
        for i, j in grid(4, 6):
            T[i, j] = X[i, j] * B[j]
        Y = empty((4, 6), f32)
        for i, j in grid(4, 6):
            Y[i, j] = T[i, j] + 1.0
        return Y

    @op
    def product(X: f32[4, 4], A: f32[4, 4], R: f32[4, 4]) -> f32[4, 4]:
        T = empty((4, 4), f32)
        for i, j in grid(4, 4):
            T[i, j] = 0.0
            for k in range(4):
                T[i, j] += X[i, k] * A[k, j]
        Y = empty((4, 4), f32)
        for i, j in grid(4, 4):
            Y[i, j] = T[i, j] + R[i, j]
        return Y

    assert clash(chain.scop(), "X", "Y", every_order=True) is None
    assert clash(product.scop(), "R", "Y", every_order=True) is None
    assert clash(product.scop(), "X", "Y") is None  # all products come first, as it is written
    assert "might write" in str(clash(product.scop(), "X", "Y", every_order=True))


def test_a_recurrence_of_symbolic_length_has_an_answer() -> None:
    """Each round needs the one before it: following those ways to their ends never ended."""

    @op
    def recurrent(X: f32[N, 4], W: f32[4, 4], H0: f32[4]) -> f32[N, 4]:
        H = empty((N + 1, 4), f32)
        for j in range(4):
            H[0, j] = H0[j]
        for t in range(N):
            for j in range(4):
                H[t + 1, j] = X[t, j]
                for k in range(4):
                    H[t + 1, j] += W[j, k] * H[t, k]
        Y = empty((N, 4), f32)
        for t, j in grid(N, 4):
            Y[t, j] = H[t + 1, j]
        return Y

    with quota(200_000):  # it takes a tenth of that
        assert clash(recurrent.scop(), "X", "Y", every_order=True) is None
