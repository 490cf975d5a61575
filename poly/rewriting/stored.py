"""Layouts of arrays in memory, and data stored by them. Nothing here knows Scops.

A layout lists the new dimensions, outermost first, as `(dim, div, mod)`: the coordinate
`(index[dim] // div) % mod`, mod 0 meaning no modulo (the same form as `tree.Promote`).
`((0, 16, 0), (1, 1, 0), (0, 1, 16))` cuts a matrix into panels of 16 rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Layout = tuple[tuple[int, int, int], ...]


def laid_out_shape(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The shape of the new array (the last block of a cut dimension may be padding)."""
    return tuple(mod or -(-shape[dim] // div) for dim, div, mod in layout)


def lay_out(data: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """`data` stored by `layout`; padding is zero."""
    return np.ascontiguousarray(seen_by(data, layout))


def seen_by(data: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """What `lay_out` gives, as a view of `data` where one can be: who copies it anyway moves each element once."""
    blocked = _blocks(data, layout)
    return _gathered(data, layout) if blocked is None else blocked


def taken_out(stored: np.ndarray[Any, Any], shape: tuple[int, ...], layout: Layout) -> np.ndarray[Any, Any]:
    """The array of `shape` that `stored` holds by `layout`: the inverse of `lay_out`."""
    grid = np.ogrid[tuple(slice(n) for n in shape)]
    return stored[tuple(grid[dim] // div % mod if mod else grid[dim] // div for dim, div, mod in layout)]


def is_layout(shape: tuple[int, ...], layout: Layout) -> bool:
    """Whether every element of an array of this shape has a place of its own: each dimension is cut into nested
    blocks, each of which occurs once. (`polyc.poly.forms.layouts` decides it for any map and all sizes.)"""
    for dim in range(len(shape)):
        cuts = sorted(((div, mod) for d, div, mod in layout if d == dim), reverse=True)
        if not cuts or cuts[-1][0] != 1 or cuts[0][1] != 0:
            return False
        if any(mod * div != above for (above, _), (div, mod) in zip(cuts, cuts[1:])):
            return False
    return all(0 <= dim < len(shape) for dim, _, _ in layout)


def _blocks(data: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any] | None:
    """The common case without index arrays: every dimension is cut into nested blocks, so that
    padding, reshaping and transposing do it. None when the layout is no such cut."""
    radices: list[int] = []  # of the reshaped array, dimension by dimension, outermost block first
    padding: list[tuple[int, int]] = []
    place: dict[tuple[int, int], int] = {}  # (dim, div) -> axis of the reshaped array
    for dim, extent in enumerate(data.shape):
        cuts = sorted(((div, mod) for d, div, mod in layout if d == dim), reverse=True)
        if not cuts or cuts[-1][0] != 1 or cuts[0][1] != 0:
            return None
        outer = cuts[0][0]
        padding.append((0, -extent % outer))
        for k, (div, mod) in enumerate(cuts):
            size = -(-extent // outer) if k == 0 else cuts[k - 1][0] // div
            if k and (mod != size or cuts[k - 1][0] % div):
                return None
            place[dim, div] = len(radices)
            radices.append(size)
    if len(place) != len(layout):
        return None
    padded = np.pad(data, padding) if any(after for _, after in padding) else data
    order = [place[dim, div] for dim, div, _ in layout]
    return padded.reshape(radices).transpose(order)


def _gathered(data: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """Any layout, element by element through index arrays."""
    shape = laid_out_shape(data.shape, layout)
    grid = np.ogrid[tuple(slice(n) for n in shape)]
    source: list[Any] = [0] * data.ndim
    for (dim, div, _), coordinate in zip(layout, grid, strict=True):
        source[dim] = source[dim] + coordinate * div
    inside: Any = True
    for dim, extent in enumerate(data.shape):
        inside = inside & (source[dim] < extent)
    clipped = tuple(np.minimum(s, n - 1) for s, n in zip(source, data.shape, strict=True))
    return np.where(inside, data[clipped], data.dtype.type(0))
