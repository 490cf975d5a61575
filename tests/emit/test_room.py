"""Local arrays that no machine has memory for are an error, not the end of the process."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import dims, empty, f64, op
from polyc.poly.errors import ArgumentError

N, M = dims("N M")


@op
def through_a_large_array(A: f64[N], B: f64[M]) -> f64[N]:
    Y, T = empty(N, f64), empty((N, M, 1 << 40), f64)
    for i in range(N):
        T[i, 0, 5] = A[i]
    for i in range(N):
        Y[i] = T[i, 0, 5] * T[N - 1 - i, 0, 5]  # read twice: T stays an array
    return Y


@pytest.mark.parametrize("others", [1, 1 << 20])  # with the second the bytes do not fit 64 bits
@pytest.mark.parametrize("backend", ["llvm", "c"])
def test_arrays_beyond_memory_are_refused(others: int, backend: str) -> None:
    kernel = through_a_large_array.compile(target="c" if backend == "c" else "cpu", threads=1)
    with pytest.raises(ArgumentError, match=r"the local array T\w*\[.*\] takes \d+ bytes, this machine has \d+"):
        kernel(np.ones(4), np.ones(others))
