"""Local integers that 32 bits hold are kept in 32 bits; all others stay, and so do results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyc import dims, empty, f32, f64, i64, op
from polyc.emit.loop_ir.loops import Alloc, walk
from polyc.poly import dtypes

N = dims("N")


@op
def last(a: f32[N]) -> i64[()]:
    result = empty((), i64)
    j = -1
    for i in range(N):
        if a[i] < 0.0:
            j = i
    result[()] = j
    return result


@op
def ends_of_32_bits(a: f32[N]) -> i64[()]:
    """From -2**31 to 2**31 - 1 where there are 12 elements."""
    result = empty((), i64)
    j = -2147483648
    for i in range(N):
        if a[i] < 0.0:
            j = 195225786 * i + 1
    result[()] = j
    return result


@op
def beyond(a: f32[N]) -> i64[()]:
    result = empty((), i64)
    j = -2147483649
    for i in range(N):
        if a[i] < 0.0:
            j = i
    result[()] = j
    return result


@op
def far_beyond(a: f32[N]) -> i64[()]:
    result = empty((), i64)
    j = 0
    for i in range(N):
        if a[i] < 0.0:
            j = 4294967296 * i + i
    result[()] = j
    return result


@op
def in_a_sum(a: f32[N]) -> f64[()]:
    """The scalar is read where a product needs 64 bits."""
    result = empty((), f64)
    j = 0
    for i in range(N):
        if a[i] < 0.0:
            j = i
    result[()] = f64(j * 4294967296 + j)
    return result


def kept_in(operator: Any, n: int | None) -> set[str]:
    kernel = operator.compile() if n is None else operator.compile(N=n)
    found = [s.buffer for s in walk(kernel.function.body) if isinstance(s, Alloc) and not s.buffer.shape]
    return {str(b.dtype) for b in found if b.dtype in (dtypes.i64, dtypes.i32)}


CASES = [
    (last, "i32"), (ends_of_32_bits, "i32"), (beyond, "i64"), (far_beyond, "i64"), (in_a_sum, "i32"),
]  # fmt: skip


@pytest.mark.parametrize("operator, width", CASES, ids=lambda v: getattr(v, "name", v))
def test_width_and_results(operator: Any, width: str) -> None:
    assert kept_in(operator, 12) == {width}
    rng = np.random.default_rng()
    for share in (0.0, 0.1, 0.9):
        a = np.where(rng.random(12) < share, -1.0, 1.0).astype(np.float32)
        assert operator.compile(N=12)(a) == operator.python(a)
    a = -np.ones(12, np.float32)
    assert operator.compile(N=12)(a) == operator.python(a)


def test_sizes_that_are_symbols_have_no_bounds() -> None:
    assert kept_in(last, None) == {"i64"}
