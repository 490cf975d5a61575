"""ATen's Fourier transforms, as ONNX's DFT along one axis after the other.

In kernels they run in the strict mode only. The loops multiply by a table, in one or two stages; torch's library has
stages for all factors of a length and is 3 to 12 times as fast at lengths of 64 to 65,536, much more at primes.
Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.aten.complex_numbers import of_pairs, pairs
from polyc.graph_driver.torch_bridge.lowering import REAL, Complex, Lowering, Value, aten_of_complex
from polyc.poly.dtypes import i64

TRANSFORMS = ("_fft_c2c.default", "_fft_r2c.default", "_fft_c2r.default")
"""What torch's library does but in the strict mode."""


def _transformed(
    b: Lowering, x: Value, axis: int, inverse: bool = False, half: bool = False, length: int | None = None
) -> Value:
    """Along an axis of `x`, whose last axis is the parts; an inverse one divides by the length."""
    return b.op(
        "DFT", x, None if length is None else b.constant(length, i64), b.constant(axis, i64),
        inverse=int(inverse), onesided=int(half),
    )  # fmt: skip


def _scaled(b: Lowering, x: Value, lengths: Sequence[int], norm: int, divided: bool) -> Value:
    """`norm` is torch's number: 0 nothing, 1 by the root of the product of the lengths, 2 by the product. `divided`:
    the transforms have divided by it already."""
    total = math.prod(lengths)
    factor = {0: 1.0, 1: total**-0.5, 2: 1 / total}[norm] * (total if divided else 1)
    return x if math.isclose(factor, 1, rel_tol=1e-15) else b.op("Mul", x, factor)


def _check(b: Lowering, x: Value | Complex) -> None:
    if not b.strict:
        raise Unsupported("torch's library transforms faster than kernels, which the strict mode takes")
    if x.dtype not in REAL:
        raise Unsupported(f"transforms of {x.dtype}")
    if not x.size:
        raise Unsupported("transforms of nothing")


@aten_of_complex("_fft_c2c.default")
def complex_to_complex(b: Lowering, z: Complex, dims: Sequence[int], norm: int, forward: bool) -> Complex:
    """Of complex numbers."""
    _check(b, z)
    found, axes = pairs(b, z), [z.re.axis(d) for d in dims]
    for axis in axes:
        found = _transformed(b, found, axis, inverse=not forward)
    return of_pairs(b, _scaled(b, found, [z.shape[a] for a in axes], norm, not forward))


@aten_of_complex("_fft_r2c.default")
def real_to_complex(b: Lowering, x: Value, dims: Sequence[int], norm: int, half: bool) -> Complex:
    """Of real numbers; of the last axis half of the result and one, if `half`."""
    _check(b, x)
    found, axes = b.reshape(x, [*x.shape, 1]), [x.axis(d) for d in dims]
    for axis in reversed(axes):
        found = _transformed(b, found, axis, half=half and axis == axes[-1])
    return of_pairs(b, _scaled(b, found, [x.shape[a] for a in axes], norm, False))


@aten_of_complex("_fft_c2r.default")
def complex_to_real(b: Lowering, z: Complex, dims: Sequence[int], norm: int, length: int) -> Value:
    """The inverse to real numbers, `length` along the last axis, of which `z` has half and one."""
    _check(b, z)
    found, axes = pairs(b, z), [z.re.axis(d) for d in dims]
    for axis in axes[:-1]:
        found = _transformed(b, found, axis, inverse=True)
    found = _transformed(b, found, axes[-1], inverse=True, half=True, length=length)
    lengths = [*(z.shape[a] for a in axes[:-1]), length]
    found = _scaled(b, found, lengths, norm, True)
    return b.reshape(found, found.shape[:-1])
