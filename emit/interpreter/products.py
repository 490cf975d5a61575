"""What tensor cores compute, element by element: sums in f32, from the first product to the last."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyc.emit.loop_ir.loops import PanelProduct, WarpgroupProduct, WarpProduct
from polyc.poly.tf32 import rounded_to_tf32

Element = Callable[[str, tuple[int, ...]], Any]
Place = tuple[int, ...]


def multiply(s: PanelProduct, acc: np.ndarray[Any, Any], left: Place, right: Place, element: Element) -> None:
    """The part of one thread, whose own first elements are at `left` and `right`; `element` reads a panel."""
    if isinstance(s, WarpProduct):
        _by_warp(s, acc, left, right, element)
    else:
        assert isinstance(s, WarpgroupProduct), type(s)
        _by_warpgroup(s, acc, left, right, element)


def taken(value: Any, bits: int) -> Any:
    """An element of so many bits as tensor cores take it, in f32."""
    value = np.float32(value)
    return value if bits == 16 else rounded_to_tf32(value)[()]


def _by_warp(s: WarpProduct, acc: np.ndarray[Any, Any], a: Place, b: Place, element: Element) -> None:
    for m, h in itertools.product(range(s.tiles[0]), range(2)):
        row = [element(s.left, (*a[:-2], a[-2] + 16 * m + 8 * h, a[-1] + k)) for k in range(16)]
        for n, e in itertools.product(range(s.tiles[1]), range(2)):
            column = [element(s.right, (*b[:-2], b[-2] + k, b[-1] + 8 * n + e)) for k in range(16)]
            acc[m, n, h, e] = _summed(acc[m, n, h, e], row, column)


def _by_warpgroup(s: WarpgroupProduct, acc: np.ndarray[Any, Any], a: Place, b: Place, element: Element) -> None:
    depth = range(16 * s.steps)
    for h in range(2):
        row = [element(s.left, (a[0] + h, a[1] + k // 8, a[2], a[3] + k % 8)) for k in depth]
        for n, e in itertools.product(range(s.columns // 8), range(2)):
            column = [element(s.right, (b[0] + n, b[1] + k // 8, b[2] + e, b[3] + k % 8)) for k in depth]
            acc[n, h, e] = _summed(acc[n, h, e], row, column)


def _summed(total: Any, row: Sequence[Any], column: Sequence[Any]) -> Any:
    for x, y in zip(row, column, strict=True):
        total = np.float32(total + x * y)
    return total
