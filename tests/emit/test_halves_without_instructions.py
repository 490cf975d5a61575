"""Halves on a CPU that has no instruction to convert them: the bits of NumPy, of all of them and at each middle."""

# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

import numpy as np
import pytest

from polyc import empty, f16, f32, f64, op
from polyc.emit.llvm import jit
from polyc.emit.llvm.run_time_calls import CALLS, definitions
from polyc.emit.targets import get

N = 1 << 16
EVERY = np.arange(N, dtype=np.uint16).view(np.float16)


def widening(T: Any) -> Any:
    @op
    def widen(X: f16[N]) -> T[N]:
        Y = empty((N,), T)
        for i in range(N):
            Y[i] = T(X[i])
        return Y

    return widen


def rounding(T: Any) -> Any:
    @op
    def narrow(X: T[N]) -> f16[N]:
        Y = empty((N,), f16)
        for i in range(N):
            Y[i] = f16(X[i])
        return Y

    return narrow


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bits, but those of what is no number."""
    bits = f"u{found.itemsize}"
    odd = np.isnan(expected)
    return bool(np.isnan(found[odd]).all() and (found.view(bits) == expected.view(bits))[~odd].all())


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("T", [f32, f64], ids=str)
def test_every_half_widens_to_itself(T: Any, target: str) -> None:
    with np.errstate(all="ignore"):
        assert same(widening(T).compile(target=target)(EVERY), EVERY.astype(T.np))


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("T", [f32, f64], ids=str)
def test_rounding_at_and_beside_every_half_and_every_middle_of_two(T: Any, target: str) -> None:
    kernel = rounding(T).compile(target=target)
    with np.errstate(all="ignore"):
        wide = EVERY.astype(T.np)
        after = np.nextafter(EVERY, EVERY.dtype.type(np.inf)).astype(T.np)
        middles = np.where(np.isfinite(after), (wide + after) / 2, np.copysign(65520.0, wide))
        random = np.random.default_rng().integers(0, 256, N * T.bytes, np.uint8).view(T.np)
        for exact in (wide, middles):
            for x in (exact, np.nextafter(exact, T.np.type(np.inf)), np.nextafter(exact, T.np.type(-np.inf))):
                assert same(kernel(x), x.astype(np.float16))
        assert same(kernel(random), random.astype(np.float16))


def test_the_functions_are_there_where_they_are_called_and_only_there() -> None:
    text = """
define void @f(ptr %p, ptr %q) {
  %x = load float, ptr %p
  %y = fptrunc float %x to half
  store half %y, ptr %q
  ret void
}
"""
    plain, new = (jit.build_object(text, get(t)) for t in ("x86-64", "x86-64-v3"))
    assert CALLS[1].encode() in plain and CALLS[0].encode() in plain
    assert not any(c.encode() in new for c in CALLS)
    assert all(f"@{c}(" in definitions() for c in CALLS)
