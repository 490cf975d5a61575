"""Lanes that are not one piece of memory and conversions of whole vectors, as a C compiler makes them."""

from typing import Any

import numpy as np
import pytest
from back_ends import C_COMPILER, difference

from polyc import empty, f32, f64, i8, i16, i32, i64, op, u8, u16, u32
from polyc.graph_driver.worker.compile_operator import compile_operator

pytestmark = pytest.mark.skipif(C_COMPILER is None, reason="no C compiler")
INTEGERS = (i8, u8, i16, u16, i32, u32, i64)


def same(operator: Any, *args: np.ndarray) -> None:
    """C and LLVM give what plain Python gives, bit by bit."""
    want = operator.python(*args)
    for backend in ("c", "llvm"):
        got = compile_operator(operator.scop(), threads=1, backend=backend)(*args)
        assert difference(got, want) == ""


@pytest.mark.parametrize("T", [i8, u16, f32, f64], ids=lambda t: t.name)
def test_lanes_apart_and_backwards(T: Any) -> None:
    @op
    def lanes(X: T[131], S: T[48, 40]) -> (T[64], T[64], T[43], T[64], T[40, 48]):
        two = empty(64, T)
        back = empty(64, T)
        three = empty(43, T)
        two_back = empty(64, T)
        turned = empty((40, 48), T)
        for i in range(64):
            two[i] = X[2 * i + 3]
            back[i] = X[70 - i]
            two_back[i] = X[130 - 2 * i]
        for i in range(43):
            three[i] = X[3 * i]
        for i in range(40):
            for j in range(48):
                turned[i, j] = S[j, i]
        return two, back, three, two_back, turned

    values = np.random.default_rng(1).integers(0, 120, 131).astype(T.np)
    same(lanes, values, np.random.default_rng(2).integers(0, 120, (48, 40)).astype(T.np))


@pytest.mark.parametrize("A", INTEGERS, ids=lambda t: t.name)
def test_integers_become_others_and_floats(A: Any) -> None:
    a, b, c, d, e, f, g = INTEGERS

    @op
    def casts(X: A[64]) -> (a[64], b[64], c[64], d[64], e[64], f[64], g[64], f32[64], f64[64]):
        r0, r1, r2, r3 = empty(64, a), empty(64, b), empty(64, c), empty(64, d)
        r4, r5, r6 = empty(64, e), empty(64, f), empty(64, g)
        r7, r8 = empty(64, f32), empty(64, f64)
        for i in range(64):
            r0[i], r1[i], r2[i], r3[i] = a(X[i]), b(X[i]), c(X[i]), d(X[i])
            r4[i], r5[i], r6[i] = e(X[i]), f(X[i]), g(X[i])
            r7[i], r8[i] = f32(X[i]), f64(X[i])
        return r0, r1, r2, r3, r4, r5, r6, r7, r8

    limits = np.iinfo(A.np)
    step = (limits.max - limits.min) // 63
    same(casts, np.array([limits.min + k * step for k in range(64)], A.np))


@pytest.mark.parametrize("A", [f32, f64], ids=lambda t: t.name)
def test_floats_become_integers(A: Any) -> None:
    """Of the values that the integers have."""
    a, b, c, d, e, f, g = INTEGERS

    @op
    def casts(X: A[64], P: A[64]) -> (a[64], b[64], c[64], d[64], e[64], f[64], g[64]):
        r0, r1, r2, r3 = empty(64, a), empty(64, b), empty(64, c), empty(64, d)
        r4, r5, r6 = empty(64, e), empty(64, f), empty(64, g)
        for i in range(64):
            r0[i], r1[i], r2[i], r3[i] = a(X[i]), b(P[i]), c(X[i]), d(P[i])
            r4[i], r5[i], r6[i] = e(X[i]), f(P[i]), g(X[i])
        return r0, r1, r2, r3, r4, r5, r6

    same(casts, np.linspace(-127.7, 127.7, 64).astype(A.np), np.linspace(0, 255.7, 64).astype(A.np))


@pytest.mark.parametrize("T", [f32, f64], ids=lambda t: t.name)
def test_the_smaller_of_nan_and_of_zeros(T: Any) -> None:
    """Which operand is given where one is NaN, and where both are zero."""

    @op
    def chosen(X: T[72], Y: T[72]) -> (T[72], T[72]):
        low = empty(72, T)
        high = empty(72, T)
        for i in range(72):
            low[i] = min(X[i], Y[i])
            high[i] = max(X[i], Y[i])
        return low, high

    special = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 1.5, -2.5, 3e-45], T.np)
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    same(chosen, np.append(pairs[0], special), np.append(pairs[1], special[::-1]))
