"""Helpers of the library that turn tuples of loop variables into tuples of subscripts.

They are ordinary Python over tuples of static length, so they run during partial
evaluation and in the plain-Python run alike, and leave only affine subscripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from polyc.frontend_dsl.functions import static


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


@static
def known(size: Sequence[Any]) -> bool:
    """Whether all extents are numbers."""
    return all(isinstance(n, int) for n in size)


def flattened(size: Sequence[Any]) -> tuple[Any, ...]:
    """All dimensions as one where their extents are known (a product of free sizes is no affine subscript)."""
    return (prod(size),) if known(size) else tuple(size)


def place(point: Sequence[Any], size: Sequence[Any]) -> tuple[Any, ...]:
    """Where `point` of an array of `size` is in its `flattened` form."""
    return (flat(point, size),) if known(size) else tuple(point)


def flat(point: Sequence[Any], size: Sequence[int]) -> Any:
    """The row-major position of `point`."""
    position = 0
    for i, n in zip(point, size, strict=True):
        position = position * n + i
    return position


def phased(
    point: Sequence[Any], tap: Sequence[Any], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Any, ...]:
    """`p * stride + k * dilation` split into its remainders modulo the strides, then its quotients."""
    pairs = list(zip(point, tap, strides, dilations, strict=True))
    remainders = tuple(scale(k, d) % s if s != 1 else 0 for _, k, s, d in pairs)
    return remainders + tuple(p + (scale(k, d) // s if s != 1 else scale(k, d)) for p, k, s, d in pairs)


def phase_of(point: Sequence[Any], offset: Sequence[Any], strides: Sequence[int]) -> tuple[Any, ...]:
    """`point + offset` split in the same way."""
    moved = [(add(p, b), s) for p, b, s in zip(point, offset, strides, strict=True)]
    return tuple(v % s if s != 1 else 0 for v, s in moved) + tuple(v // s if s != 1 else v for v, s in moved)


def scale(value: Any, factor: int) -> Any:
    """`value * factor`, kept bare for factor 1 so that subscripts stay plain variables."""
    return value if factor == 1 else value * factor


def add(value: Any, offset: int) -> Any:
    """`value + offset`, kept bare for offset 0."""
    return value if offset == 0 else value + offset
