"""Helpers of the library that turn tuples of loop variables into tuples of subscripts.

They are ordinary Python over tuples of static length, so they run during partial
evaluation and in the plain-Python run alike, and leave only affine subscripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frontend_dsl.functions import static


@static
def align(index: Sequence[Any], shape: Sequence[int], out: Sequence[int]) -> tuple[Any, ...]:
    """The element of an operand of `shape` that broadcasts to `index` of an output of shape `out`.

    A symbolic extent of the operand is the output's.
    """
    lead = len(out) - len(shape)
    pairs = zip(index[lead:], shape, out[lead:], strict=True)
    return tuple(i if e == n or not isinstance(e, int) else 0 for i, e, n in pairs)


def pick(index: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """`index` rearranged: element `d` of the result is `index[order[d]]`."""
    return tuple(index[d] for d in order)


def step(index: Sequence[Any], starts: Sequence[int], steps: Sequence[int]) -> tuple[Any, ...]:
    """`start + step * i` in every dimension."""
    return tuple(add(scale(i, s), b) for i, b, s in zip(index, starts, steps, strict=True))


def window(
    point: Sequence[Any], tap: Sequence[Any], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Any, ...]:
    """`p * stride + k * dilation` in every dimension: what tap `k` of a sliding window reads at `p`."""
    pairs = zip(point, tap, strides, dilations, strict=True)
    return tuple(scale(p, s) + scale(k, d) for p, k, s, d in pairs)


def scale(value: Any, factor: int) -> Any:
    """`value * factor`, kept bare for factor 1 so that subscripts stay plain variables."""
    return value if factor == 1 else value * factor


def add(value: Any, offset: int) -> Any:
    """`value + offset`, kept bare for offset 0."""
    return value if offset == 0 else value + offset
