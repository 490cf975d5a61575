"""Local arrays in the type that their values come from: the same bits, fewer bytes."""

# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

import numpy as np
import pytest
from execute import execute

from polyc import bf16, empty, f16, f32, full, grid, op
from polyc.poly.rewriting.narrow import stored_narrow
from polyc.poly.verify import verify


def windows(T: Any, fill: float, of: Any = f32) -> Any:
    """Sums over windows of a padded copy."""

    @op
    def padded(X: T[7, 9]) -> f32[7, 9]:
        P = full((7, 11), fill, f32)
        Y = empty((7, 9), f32)
        for i, j in grid(7, 9):
            P[i, j + 1] = f32(of(X[i, j]))
        for i, j in grid(7, 9):
            Y[i, j] = 0.0
            for k in range(3):
                if P[i, j + k] > -100.0:
                    Y[i, j] += P[i, j + k] * 0.5
        return Y

    return padded


@pytest.mark.parametrize("T", [f16, bf16], ids=str)
@pytest.mark.parametrize("fill", [0.0, -0.5, float("-inf")])
def test_copies_of_halves_are_halves(T: Any, fill: float) -> None:
    scop = windows(T, fill).scop()
    narrow = stored_narrow(scop)
    verify(narrow)
    assert scop.arrays["P"].dtype == f32 and narrow.arrays["P"].dtype == T and narrow.arrays["Y"].dtype == f32
    x = np.random.default_rng().standard_normal((7, 9)).astype(T.np)
    np.testing.assert_array_equal(execute(scop, {"X": x})["Y"], execute(narrow, {"X": x})["Y"])


def test_others_stay() -> None:
    """A filling that f16 has not, operands of full width."""
    for program in (windows(f16, 0.1), windows(f16, 1e6), windows(f32, 0.0)):
        scop = program.scop()
        assert stored_narrow(scop) is scop


def test_rounded_values_are_narrow() -> None:
    """f32 rounded to f16 before it is stored."""
    scop = windows(f32, 0.0, f16).scop()
    narrow = stored_narrow(scop)
    assert narrow.arrays["P"].dtype == f16
    x = np.random.default_rng().standard_normal((7, 9)).astype(np.float32)
    np.testing.assert_array_equal(execute(scop, {"X": x})["Y"], execute(narrow, {"X": x})["Y"])


def test_sums_in_f32_stay_f32() -> None:
    @op
    def sums(X: f16[8, 8]) -> f32[8]:
        S = empty((8,), f32)
        Y = empty((8,), f32)
        for i in range(8):
            S[i] = f32(X[i, 0])
            for k in range(8):
                S[i] += f32(X[i, k])
        for i in range(8):
            Y[i] = S[i]
        return Y

    scop = sums.scop()
    assert stored_narrow(scop).arrays["S"].dtype == f32
