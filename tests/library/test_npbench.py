"""The affine programs of NPBench: compiled, against plain Python and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from examples.npbench import OPERATORS, arguments, expected, results


@pytest.mark.parametrize("name", OPERATORS)
def test_program(name: str) -> None:
    operator, given = OPERATORS[name], arguments(name, small=True)
    found = results(name, operator, given)
    plain, numpy = results(name, operator.python, given), expected(name, given)
    for ours, python, other in zip(found, plain, numpy, strict=True):
        np.testing.assert_allclose(ours, python, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(ours, other, rtol=1e-9, atol=1e-11)
