"""Arrays by name that lie one behind the other, so that one kernel can run over all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

LINE = 64
"""Bytes: each array begins at a cache line of its own."""


class Storage:
    """Copies of arrays: `views` by name, `flat` the array `[n]` of each type that they are views of (gaps are 0)."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        sizes: dict[np.dtype, int] = {}
        places: dict[str, int] = {}
        for name, a in arrays.items():
            line = LINE // a.dtype.itemsize
            places[name] = sizes.get(a.dtype, 0)
            sizes[a.dtype] = places[name] + -(-a.size // line) * line
        self.flat = {dtype: _aligned(dtype, n) for dtype, n in sizes.items()}
        self.views: dict[str, np.ndarray] = {}
        for name, a in arrays.items():
            view = self.flat[a.dtype][places[name] : places[name] + a.size].reshape(a.shape)
            view[...] = a
            self.views[name] = view


def _aligned(dtype: np.dtype, n: int) -> np.ndarray:
    """Zeros that begin at a cache line."""
    raw = np.zeros(n * dtype.itemsize + LINE, np.uint8)
    shift = -raw.ctypes.data % LINE
    return raw[shift : shift + n * dtype.itemsize].view(dtype)
