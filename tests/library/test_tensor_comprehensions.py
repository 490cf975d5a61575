"""The kernels of the paper on Tensor Comprehensions: compiled, against plain Python and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from examples.tensor_comprehensions import OPERATORS, REFERENCES, arguments
from polyc.poly.access import accesses


@pytest.mark.parametrize("name", OPERATORS)
def test_kernel(name: str) -> None:
    operator, given = OPERATORS[name], arguments(name, small=True)
    found = operator(*given)
    plain, expected = operator.python(*given), REFERENCES[name](*given)
    results = [(r if isinstance(r, tuple) else (r,)) for r in (found, plain, expected)]
    for ours, python, numpy in zip(*results, strict=True):
        np.testing.assert_allclose(ours, python, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ours, numpy, rtol=1e-5, atol=1e-6)
    scop = operator.scop()
    dynamic = [a for a in accesses(scop) if not a.must]
    assert bool(dynamic) == name.startswith("lut")  # rows that data choose
