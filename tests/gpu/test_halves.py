"""Conversions between f16 and f32 in OpenCL text: every f16 there and back, and every rounding to nearest even."""

from __future__ import annotations

import numpy as np
from texts import needs_opencl

from polyc import dims, empty, f16, f32, op

N = dims("N")


@op
def widened(X: f16[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = f32(X[i])
    return Y


@op
def narrowed(X: f32[N]) -> f16[N]:
    Y = empty((N,), f16)
    for i in range(N):
        Y[i] = f16(X[i])
    return Y


HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@needs_opencl
def test_every_half_is_the_same_number_in_f32() -> None:
    got = widened.compile(target="opencl", N=HALVES.size)(HALVES)
    np.testing.assert_array_equal(got, HALVES.astype(np.float32))


@needs_opencl
def test_rounding_at_and_beside_every_middle_of_two_halves() -> None:
    finite = np.sort(HALVES[np.isfinite(HALVES)].astype(np.float64))
    middle = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    beyond = np.array([65519.996, 65520.0, 1e30, np.inf, -np.inf, np.nan, 2.0**-25, 2.0**-26, -0.0], np.float32)
    beside = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
    x = np.concatenate([middle, *beside, beyond])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    got = narrowed.compile(target="opencl", N=x.size)(x)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
