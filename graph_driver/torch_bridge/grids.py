"""The derivative of ATen's samples of images at points of a grid, as a program of other ATen operators.

A point takes from each axis a few elements (taps), each with a weight; its value is the sum over all combinations of
the taps of the axes. The adjoint of the image scatters with the products of the weights; the adjoint of a coordinate
takes the derivative of its axis' weights in the place of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from polyc.poly.records import dataclass

LINEAR, NEAREST, CUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
SHARPNESS = -0.75
"""The free parameter of the cubic convolution (Keys, 1981), as torch has it."""


@dataclass(frozen=True)
class Taps:
    """Of one axis: a tensor for each tap, of the grid's shape without its last axis. `slopes` are the derivatives of
    the weights by the coordinate as it is given, none where the weights are constant."""

    indices: Sequence[Tensor]
    inside: Sequence[Tensor]
    weights: Sequence[Tensor]
    slopes: Sequence[Tensor]


def _reflected(at: Tensor, twice_low: int, twice_high: int) -> tuple[Tensor, Tensor]:
    """Coordinates folded into the range, and the sign of the derivative."""
    if twice_low == twice_high:
        return torch.zeros_like(at), torch.zeros_like(at)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    away = at - low
    sign = torch.where(away < 0, -1.0, 1.0).to(at.dtype)
    away = away.abs()
    flips = torch.floor(away / span)
    extra = away - flips * span
    even = torch.remainder(flips, 2) == 0
    return torch.where(even, extra, span - extra) + low, torch.where(even, sign, -sign)


def _padded(at: Tensor, extent: int, padding: int, align: bool) -> tuple[Tensor, Tensor]:
    """Coordinates moved into the image, as the padding says, and the derivative of that: 0 on the border, too."""
    slope = torch.ones_like(at)
    if padding == ZEROS:
        return at, slope
    if padding == REFLECTION:
        at, slope = _reflected(at, *((0, 2 * (extent - 1)) if align else (-1, 2 * extent - 1)))
    free = (at > 0) & (at < extent - 1)
    return at.clamp(0, extent - 1), torch.where(free, slope, 0.0)


def _cubic(f: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Weights of the elements at -1, 0, 1 and 2 for a point `f` behind 0, and their derivatives."""
    a = SHARPNESS

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    def near_slope(d: Tensor) -> Tensor:
        return (3 * (a + 2) * d - 2 * (a + 3)) * d

    def far_slope(d: Tensor) -> Tensor:
        return (3 * a * d - 10 * a) * d + 8 * a

    weights = [far(f + 1), near(f), near(1 - f), far(2 - f)]
    return weights, [far_slope(f + 1), near_slope(f), -near_slope(1 - f), -far_slope(2 - f)]


def taps(given: Tensor, extent: int, mode: int, padding: int, align: bool) -> Taps:
    """Of the coordinates of an axis with `extent` elements; -1 and 1 are its ends."""
    scale = (extent - 1) / 2 if align else extent / 2
    at = (given + 1) * scale if align else ((given + 1) * extent - 1) / 2
    if mode == CUBIC:
        first = torch.floor(at)
        weights, slopes = _cubic(at - first)
        places = [_padded(first + k, extent, padding, align)[0] for k in (-1, 0, 1, 2)]
        slopes = [s * scale for s in slopes]
    else:
        at, moved = _padded(at, extent, padding, align)
        if mode == NEAREST:
            places, weights, slopes = [torch.round(at)], [torch.ones_like(at)], []
        else:
            first = torch.floor(at)
            places, weights = [first, first + 1], [first + 1 - at, at - first]
            slopes = [-moved * scale, moved * scale]
    inside = [(p >= 0) & (p < extent) for p in places]
    indices = [torch.where(i, p, 0.0).to(torch.int64) for p, i in zip(places, inside, strict=True)]
    return Taps(indices, inside, weights, slopes)


def _spread(tensors: Sequence[Tensor], axis: int, axes: int) -> Tensor:
    """The taps' tensors as one, whose first axes are the taps of each axis of the image."""
    one = torch.stack(list(tensors))
    return one.reshape([*(len(tensors) if k == axis else 1 for k in range(axes)), *one.shape[1:]])


def _product(factors: Sequence[Tensor]) -> Tensor:
    return math.prod(factors[1:], start=factors[0])


@dataclass(frozen=True)
class _Points:
    """Where each point takes its elements (an index for the batch and one for each axis of the image), and with which
    weights: tensors that begin with an axis for the taps of each axis of the image."""

    where: tuple[Tensor, ...]
    inside: Tensor
    weights: Sequence[Tensor]
    slopes: Sequence[Tensor]


def _points(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> _Points:
    axes = x.dim() - 2
    each = [taps(grid[..., axes - 1 - k], x.shape[2 + k], mode, padding, align) for k in range(axes)]
    batch = torch.arange(x.shape[0], device=x.device).reshape([-1, *[1] * axes])
    where = (batch, *(_spread(t.indices, k, axes) for k, t in enumerate(each)))
    inside = [_spread(t.inside, k, axes) for k, t in enumerate(each)]
    every = inside[0]
    for i in inside[1:]:
        every = every & i
    weights = [_spread(t.weights, k, axes) for k, t in enumerate(each)]
    slopes = [_spread(t.slopes, k, axes) for k, t in enumerate(each) if t.slopes]
    return _Points(where, every, weights, slopes)


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, *range(2, x.dim()), 1)


def grid_sampler_2d(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Any:
    """Cubic samples beyond a border: ONNX moves the point onto the border, torch each tap. All else is ONNX's."""
    if mode == CUBIC and padding == BORDER:
        return decomposition_table[torch.ops.aten.grid_sampler_2d.default](x, grid, mode, padding, align)
    return NotImplemented


def grid_sampler_backward(
    dy: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool, output_mask: Sequence[bool]
) -> Any:
    """The adjoints of the image and of the grid, None for one that `output_mask` does not want."""
    if not x.numel() or not grid.numel():
        return NotImplemented
    axes = x.dim() - 2
    found, adjoint = _points(x, grid, mode, padding, align), _channels_last(dy)
    of_x = of_grid = None
    if output_mask[0]:
        factor = torch.where(found.inside, _product(found.weights), 0.0).unsqueeze(-1)
        zeros = torch.zeros_like(_channels_last(x), memory_format=torch.contiguous_format)
        of_x = zeros.index_put(found.where, adjoint * factor, accumulate=True)
        of_x = of_x.permute(0, axes + 1, *range(1, axes + 1)).contiguous()
    if output_mask[1]:
        of_grid = torch.zeros_like(grid)
        if found.slopes:
            values = torch.where(found.inside, (_channels_last(x)[found.where] * adjoint).sum(-1), 0.0)
            parts = [_product([*found.weights[:k], s, *found.weights[k + 1 :]]) for k, s in enumerate(found.slopes)]
            of_grid = torch.stack([(values * p).sum(list(range(axes))) for p in reversed(parts)], -1)
    return of_x, of_grid
