"""Changing how an array lies in memory: subscripts composed with a layout map.

A layout lists the new dimensions, outermost first, as `(dim, div, mod)`: the coordinate
`(index[dim] // div) % mod`, mod 0 meaning no modulo (the same form as `tree.Promote`).
`((0, 16, 0), (1, 1, 0), (0, 1, 16))` cuts a matrix into panels of 16 rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from poly.dtypes import i64
from poly.errors import ScopError
from poly.expr import Binary, Const, Expr, Load, const_int, rewrite
from poly.scop import Array, Scop, Statement

Layout = tuple[tuple[int, int, int], ...]


def laid_out_shape(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The shape of the new array (the last block of a cut dimension may be padding)."""
    return tuple(mod or -(-shape[dim] // div) for dim, div, mod in layout)


def laid_out_index(index: tuple[Expr, ...], layout: Layout) -> tuple[Expr, ...]:
    """The new subscript of the element at `index`."""
    out = []
    for dim, div, mod in layout:
        e = index[dim]
        if div != 1:
            e = Binary("//", e, const_int(div), i64)
        if mod:
            e = Binary("%", e, const_int(mod), i64)
        out.append(e)
    return tuple(out)


def relayout(scop: Scop, array: str, layout: Layout) -> Scop:
    """The same algorithm with `array` (constant sizes) stored by `layout`.

    Raises:
        ScopError: the array's shape is symbolic.
    """
    old = scop.arrays[array]
    if not all(isinstance(e, Const) for e in old.shape):
        raise ScopError(f"cannot change the layout of '{array}': its shape is symbolic")
    shape = laid_out_shape(tuple(int(e.value) for e in old.shape if isinstance(e, Const)), layout)
    new = Array(array, old.dtype, tuple(const_int(n) for n in shape), old.kind, old.scalar, old.span)

    def move(node: Expr) -> Expr:
        if isinstance(node, Load) and node.array == array:
            return Load(array, laid_out_index(node.index, layout), node.dtype, node.span)
        return node

    def moved(s: Statement) -> Statement:
        index = tuple(rewrite(e, move) for e in s.index)
        return replace(
            s,
            index=laid_out_index(index, layout) if s.array == array else index,
            value=rewrite(s.value, move),
            predicate=None if s.predicate is None else rewrite(s.predicate, move),
            dynamic=tuple(replace(d, lo=rewrite(d.lo, move), hi=rewrite(d.hi, move)) for d in s.dynamic),
        )

    statements = {name: moved(s) for name, s in scop.statements.items()}
    return replace(scop, arrays={**scop.arrays, array: new}, statements=statements)


def lay_out(data: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """`data` stored by `layout`; padding is zero."""
    shape = laid_out_shape(data.shape, layout)
    grid = np.ogrid[tuple(slice(n) for n in shape)]
    source: list[Any] = [0] * data.ndim
    for (dim, div, _), coordinate in zip(layout, grid, strict=True):
        source[dim] = source[dim] + coordinate * div
    inside: Any = True
    for dim, extent in enumerate(data.shape):
        inside = inside & (source[dim] < extent)
    clipped = tuple(np.minimum(s, n - 1) for s, n in zip(source, data.shape, strict=True))
    return np.ascontiguousarray(np.where(inside, data[clipped], data.dtype.type(0)))
