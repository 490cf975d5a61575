"""Forward substitution, panels and reshaping against running the Scop instance by instance."""

# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

import numpy as np
import pytest
from execute import execute
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc import dims, empty, f32, grid, op
from polyc.poly.errors import ScopError
from polyc.poly.rewriting.compose import compose
from polyc.poly.rewriting.forward import forward
from polyc.poly.rewriting.forward_cost import reads_per_element, work_of
from polyc.poly.rewriting.panels import stored_in_order
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.rewriting.reshape import reshaped
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop
from polyc.poly.verify import verify


def producer(n: int, m: int, shift: int) -> Scop:
    @op
    def first(X: f32[n, m + shift], S: f32[n]) -> f32[n, m]:
        Y = empty((n, m), f32)
        for i, j in grid(n, m):
            Y[i, j] = max(X[i, j + shift] * S[i], 0.0)
        return Y

    return first.scop()


def reader(n: int, m: int, window: int) -> Scop:
    @op
    def second(Y: f32[n, m]) -> f32[n, m - window + 1]:
        Z = empty((n, m - window + 1), f32)
        for i, j in grid(n, m - window + 1):
            Z[i, j] = 0.0
            for k in range(window):
                Z[i, j] += Y[i, j + k]
        return Z

    return second.scop()


def together(n: int, m: int, shift: int, window: int) -> Scop:
    parts = [(producer(n, m, shift), {"X": "x", "S": "s", "Y": "t"}), (reader(n, m, window), {"Y": "t", "Z": "z"})]
    return compose("both", parts, ["x", "s"], ["z"])


def inputs_of(scop: Scop, seed: int) -> dict[str, np.ndarray]:
    local = np.random.default_rng(seed)
    shapes = {n: tuple(int(e.value) for e in scop.arrays[n].shape) for n in scop.args}
    return {n: local.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(3, 8), st.integers(0, 2), st.integers(1, 3), st.sampled_from([2, 3, 4]))
def test_all_forms_compute_the_same(n: int, m: int, shift: int, window: int, width: int) -> None:
    scop = together(n, m, shift, window)
    given_arrays = inputs_of(scop, n * m)
    expected = execute(scop, given_arrays)["z"]
    assert reads_per_element(scop, "t", {}) == pytest.approx((m - window + 1) * window / m)
    layout = ((1, width, 0), (0, 1, 0), (1, 1, width))
    forms = [
        forward(scop, "t"),
        stored_in_order(relayout(scop, "t", layout), "t", layout),
        reshaped(scop, "t", (m * n,)),
    ]
    assert "t" not in forms[0].arrays
    for form in forms:
        verify(form)
        np.testing.assert_array_equal(execute(form, given_arrays)["z"], expected)


def test_a_shape_with_symbolic_sizes() -> None:
    """Rows of any number are rows before and after; only behind a number a symbol has no affine subscript."""
    scop = together(dims("n"), 6, 0, 2)
    rows = scop.arrays["t"].shape[0]
    form = specialise(reshaped(scop, "t", (1, rows, 2, 3), [((), (0,)), ((0,), (1,)), ((1,), (2, 3))]), {"n": 3})
    verify(form)
    given_arrays = inputs_of(form, 0)
    expected = execute(specialise(scop, {"n": 3}), given_arrays)["z"]
    np.testing.assert_array_equal(execute(form, given_arrays)["z"], expected)
    with pytest.raises(ScopError, match="its shape is symbolic"):
        reshaped(scop, "t", (rows, 2, 3))
    with pytest.raises(ScopError, match="no affine subscript"):
        reshaped(scop, "t", (2, 3, rows), [((0, 1), (0, 1, 2))])


def test_work_counts_operations_that_move_with_the_lane() -> None:
    assert work_of(together(3, 8, 1, 2), "t") == 2.0  # a product and a maximum; S[i] stays


def test_refusals_say_why() -> None:
    scop = together(2, 6, 0, 2)
    with pytest.raises(ScopError, match="needed outside"):
        forward(scop, "z")
    with pytest.raises(ScopError, match="the number of elements|cannot reshape"):
        reshaped(scop, "t", (5,))

    @op
    def padded(X: f32[4]) -> f32[4]:
        P = polyc.zeros((6,), f32)
        for i in range(4):
            P[i + 1] = X[i]
        Y = empty((4,), f32)
        for i in range(4):
            Y[i] = P[i] + P[i + 2]
        return Y

    with pytest.raises(ScopError, match="written by 2 statements"):
        forward(padded.scop(), "P")
