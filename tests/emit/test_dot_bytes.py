"""Four products of bytes: the same on all back ends, and one instruction where a machine has it."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import dims, dot_bytes, empty, i32, op
from polyc.emit import targets

N, K = dims("N K")
rng = np.random.default_rng(2)


@op
def product(A: i32[K], B: i32[K, N]) -> i32[N]:
    """Unsigned bytes of B times signed ones of A."""
    Y = empty(N, i32)
    for n in range(N):
        Y[n] = 0
        for k in range(K):
            Y[n] += dot_bytes(B[k, n], A[k])
    return Y


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3", "c"])
@pytest.mark.parametrize("extremes", [False, True])
def test_exact(target: str, extremes: bool) -> None:
    k, n = 13, 37
    a = rng.integers(-(2**31), 2**31, k).astype(np.int32)
    b = rng.integers(-(2**31), 2**31, (k, n)).astype(np.int32)
    if extremes:  # sums of two products that 16 bits could not hold
        a[:], b[:] = np.int32(-0x7F7F7F80), np.int32(-1)
    bytes_a, bytes_b = a.view(np.int8).reshape(k, 4), b.view(np.uint8).reshape(k, n, 4)
    want = np.einsum("knj,kj->n", bytes_b.astype(np.int64), bytes_a.astype(np.int64))
    np.testing.assert_array_equal(product.python(a, b), want)
    np.testing.assert_array_equal(product.compile(target=target, N=n, K=k)(a, b), want)


@op
def product_of_codes(A: i32[K], B: i32[K, N], M: i32) -> i32[N]:
    """The same of bytes below 128, of which no two products are too large for 16 bits; and below 16."""
    Y = empty(N, i32)
    for n in range(N):
        Y[n] = M
        for k in range(K):
            Y[n] += dot_bytes(B[k, n] & 0x7F7F7F7F, A[k])
            Y[n] += dot_bytes(B[k, n] >> 4 & 0x0F0F0F0F, A[k])
    return Y


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3", "x86-64", "c"])
@pytest.mark.parametrize("extremes", [False, True])
def test_codes(target: str, extremes: bool) -> None:
    k, n = 13, 37
    a = rng.integers(-(2**31), 2**31, k).astype(np.int32)
    b = rng.integers(-(2**31), 2**31, (k, n)).astype(np.int32)
    if extremes:  # 127 times -128, twice, is the most that fits 16 bits
        a[:], b[:] = np.int32(-0x7F7F7F80), np.int32(-1)
    want = np.full(n, 7)
    for codes in (b & 0x7F7F7F7F, b >> 4 & 0x0F0F0F0F):
        bytes_a, bytes_b = a.view(np.int8).reshape(k, 4), codes.view(np.uint8).reshape(k, n, 4)
        want += np.einsum("knj,kj->n", bytes_b.astype(np.int64), bytes_a.astype(np.int64))
    np.testing.assert_array_equal(product_of_codes.python(a, b, 7), want)
    kernel = product_of_codes.compile(target=target, N=n, K=k)
    np.testing.assert_array_equal(kernel(a, b, 7), want)
    if target == "x86-64-v3":
        assert "vpmaddubsw" in kernel.source("asm") and "vpmulld" not in kernel.source("asm")


def test_one_instruction() -> None:
    kernel = product.compile(target="sapphire-rapids", N=64, K=8)
    assert "dot_bytes_add" in kernel.source("loops")
    assert "vpdpbusd" in kernel.source("asm")
    assert "dot_bytes" in targets.own_instructions(targets.get("sapphire-rapids"))
    assert "dot_bytes" not in targets.own_instructions(targets.get("x86-64-v3"))
