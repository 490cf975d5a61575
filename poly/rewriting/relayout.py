"""Changing how an array lies in memory: subscripts composed with a layout map.

The layouts, and arrays stored by them, are in `stored.py` beside this.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.poly.dtypes import i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Const, Expr, Load, const_int, rewrite
from polyc.poly.rewriting.stored import Layout, laid_out_shape
from polyc.poly.scop import Array, Scop, Statement


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
    """The same algorithm with `array` stored by `layout`, which for symbolic sizes is a transposition.

    Raises:
        ScopError: dimensions whose sizes are symbols would be cut into blocks.
    """
    old = scop.arrays[array]
    if all(div == 1 and mod == 0 for _, div, mod in layout):
        shape = tuple(old.shape[dim] for dim, _, _ in layout)
    elif all(isinstance(e, Const) for e in old.shape):
        sizes = laid_out_shape(tuple(int(e.value) for e in old.shape if isinstance(e, Const)), layout)
        shape = tuple(const_int(n) for n in sizes)
    else:
        raise ScopError(f"cannot cut '{array}' into blocks: its shape is symbolic")
    leading = tuple((dim, 1, 0) for dim in range(old.expanded))
    expanded = old.expanded if layout[: old.expanded] == leading else 0
    new = Array(array, old.dtype, shape, old.kind, old.scalar, old.span, expanded)

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
