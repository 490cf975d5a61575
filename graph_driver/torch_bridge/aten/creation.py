"""ATen operators that make tensors of sizes alone: they are constants.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten

MOST = 1 << 24
"""Elements of a sequence that is kept as a constant."""


def _filled(b: Lowering, fill: Any) -> Value:
    assert b.result is not None
    return b.full(fill, *b.result)


@aten("full.default", "full_like.default", "new_full.default")
def full(b: Lowering, like: Any, fill: Any, *more: Any, **where: Any) -> Value:
    """Of one number; the last argument of `new_full`."""
    if more:
        fill = more[0]
    assert b.result is not None
    return b.expand(b.cast(fill, b.result[0]), b.result[1]) if isinstance(fill, Value) else _filled(b, fill)


@aten("zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format", "empty_like.default",
      "new_empty.default", "empty_strided.default", "new_empty_strided.default", "empty_permuted.default")  # fmt: skip
def zeros(b: Lowering, *like: Any, **where: Any) -> Value:
    """Of zeros, and of anything."""
    return _filled(b, 0)


@aten("ones.default", "ones_like.default", "new_ones.default")
def ones(b: Lowering, *like: Any, **where: Any) -> Value:
    """Of ones."""
    return _filled(b, 1)


@aten("scalar_tensor.default")
def scalar(b: Lowering, value: Any, **where: Any) -> Value:
    """One number."""
    return _filled(b, value)


@aten("fill.Scalar", "fill.Tensor")
def fill(b: Lowering, x: Value, value: Any) -> Value:
    """All elements one number."""
    return b.expand(b.cast(value, x.dtype), x.shape) if isinstance(value, Value) else _filled(b, value)


def _sequence(b: Lowering, first: float, step: float) -> Value:
    """Computed by NumPy: torch may be tracing while this runs."""
    assert b.result is not None
    (length,) = b.result[1]
    if length > MOST:
        raise Unsupported("a long sequence")
    exact = isinstance(first, int) and isinstance(step, int)
    places: Any = np.arange(length, dtype=np.int64 if exact else np.float64)
    return b.constant(first + step * places, b.result[0])


@aten("arange.default", "arange.start", "arange.start_step")
def arange(b: Lowering, *ends: float, dtype: torch.dtype | None = None, **where: Any) -> Value:
    """Numbers at equal steps."""
    first, step = (ends[0] if len(ends) > 1 else 0), (ends[2] if len(ends) > 2 else 1)
    return _sequence(b, first, step)


@aten("iota.default", "prims.iota.default")
def iota(b: Lowering, length: int, *, start: int, step: int, dtype: torch.dtype, **where: Any) -> Value:
    """Integers at equal steps."""
    return _sequence(b, start, step)


@aten("linspace.default")
def linspace(b: Lowering, first: float, last: float, steps: int, dtype: torch.dtype | None = None, **w: Any) -> Value:
    """Numbers between two ends."""
    return _sequence(b, float(first), (last - first) / max(steps - 1, 1))


@aten("eye.default", "eye.m")
def eye(b: Lowering, rows: int, columns: int | None = None, **where: Any) -> Value:
    """Ones on the diagonal."""
    assert b.result is not None
    return b.constant(np.eye(rows, columns), b.result[0])
