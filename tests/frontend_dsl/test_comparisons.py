"""Comparisons of loop variables and other Python integers with elements of arrays: exact, as NumPy's are."""

import numpy as np
import pytest

from polyc.frontend_dsl import op

TEXT = """
from polyc import *
N = dims("N")

@op
def f(P: {kind}[N]) -> i32[N]:
    R = zeros((N,), i32)
    for i in range(N):
        for p in range({range}):
            if {condition}:
                R[i] += 1
    return R
"""


@pytest.mark.parametrize("kind", ["i8", "u8", "i16", "u32", "i64", "u64"])
@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "==", "!="])
def test_numbers_that_the_type_does_not_hold(kind: str, operator: str) -> None:
    values = np.array([0, 1, 5, 100, 127], getattr(np, {"i": "int", "u": "uint"}[kind[0]] + kind[1:]))
    if kind[0] == "i":
        values[2] = -3
    for side in (f"p {operator} P[i]", f"P[i] {operator} p * 3 - 200"):
        f = op.from_source(TEXT.format(kind=kind, range="-150, 300", condition=side))
        expected = f.python(values)
        np.testing.assert_array_equal(f(values), expected, err_msg=side)


def test_a_product_beyond_the_type() -> None:
    f = op.from_source(TEXT.format(kind="i32", range="100000", condition="p * p < P[i]"))
    values = np.array([0, 2**31 - 1, -5, 10**6], np.int32)
    np.testing.assert_array_equal(f(values), [0, 46341, 0, 1000])
