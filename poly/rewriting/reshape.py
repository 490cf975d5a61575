"""An array seen over another shape of the same row-major memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from polyc.poly.dtypes import i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Const, Expr, Load, const_int, rewrite
from polyc.poly.scop import Scop, Statement

Extent = int | Expr
Blocks = list[tuple[tuple[int, ...], tuple[int, ...]]]


def blocks(old: Sequence[int], new: Sequence[int]) -> Blocks | None:
    """Both shapes cut into matching runs of axes with equal products; None when sizes differ."""
    result = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = i, j
        left = old[i] if i < len(old) else 1
        right = new[j] if j < len(new) else 1
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while left != right:
            if left < right and i < len(old):
                left, i = left * old[i], i + 1
            elif right < left and j < len(new):
                right, j = right * new[j], j + 1
            else:
                return None
        result.append((tuple(range(a, i)), tuple(range(b, j))))
    return result


def reshaped(scop: Scop, array: str, shape: Sequence[Extent], cuts: Blocks | None = None) -> Scop:
    """The same algorithm with `array` declared as `shape`, its memory unchanged.

    `cuts` are runs of axes of the old and of the new shape that hold equally many elements; without them they are
    found, which needs numbers. In a run the first extents may be symbolic, the others are numbers.

    Raises:
        ScopError: an extent is symbolic that must be a number, or the shape has another number of elements.
    """
    declared = scop.arrays[array]
    old = tuple(int(e.value) if isinstance(e, Const) else e for e in declared.shape)
    new = tuple(shape)
    if old == new:
        return scop
    if cuts is None:
        cuts = _cuts(array, old, new)

    def index(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(e for left, right in cuts for e in _regrouped([at[k] for k in left], [old[k] for k in left],
                                                                   [new[k] for k in right]))  # fmt: skip

    def move(node: Expr) -> Expr:
        if isinstance(node, Load) and node.array == array:
            return Load(array, index(node.index), node.dtype, node.span)
        return node

    def moved(s: Statement) -> Statement:
        target = tuple(rewrite(e, move) for e in s.index)
        return replace(
            s,
            index=index(target) if s.array == array else target,
            value=rewrite(s.value, move),
            predicate=None if s.predicate is None else rewrite(s.predicate, move),
            dynamic=tuple(replace(d, lo=rewrite(d.lo, move), hi=rewrite(d.hi, move)) for d in s.dynamic),
        )

    arrays = {**scop.arrays, array: replace(declared, shape=tuple(map(_expr, new)))}
    return replace(scop, arrays=arrays, statements={n: moved(s) for n, s in scop.statements.items()})


def _cuts(array: str, old: Sequence[Extent], new: Sequence[Extent]) -> Blocks:
    """Runs of equally many elements."""
    before, after = ([n for n in shape if isinstance(n, int)] for shape in (old, new))
    if len(before) < len(old) or len(after) < len(new):
        raise ScopError(f"cannot reshape '{array}': its shape is symbolic")
    if prod(before) != prod(after):
        raise ScopError(f"cannot reshape '{array}' from {before} to {after}")
    found = blocks(before, after) if prod(before) else None
    return found if found is not None else [(tuple(range(len(old))), tuple(range(len(new))))]


def _expr(extent: Extent) -> Expr:
    return const_int(extent) if isinstance(extent, int) else extent


def _regrouped(index: Sequence[Expr], old: Sequence[Extent], new: Sequence[Extent]) -> list[Expr]:
    """Subscripts of one run of axes: one number in mixed radix `old`, written in radix `new`."""
    kept = [(e, n) for e, n in zip(index, old) if n != 1]
    below = 1
    if any(not isinstance(n, int) for _, n in kept[1:]):
        raise ScopError("a symbolic size behind another one, or behind a number, has no affine subscript")
    linear: Expr = const_int(0)
    for k, (e, n) in enumerate(kept):
        linear = e if k == 0 else Binary("+", Binary("*", linear, _expr(n), i64), e, i64)
    wanted = [k for k, n in enumerate(new) if n != 1]
    out: list[Expr] = [const_int(0)] * len(new)
    for k in reversed(wanted):
        e, n = linear if below == 1 else Binary("//", linear, const_int(below), i64), new[k]
        out[k] = e if k == wanted[0] else Binary("%", e, _expr(n), i64)
        if k != wanted[0]:
            if not isinstance(n, int):
                raise ScopError("a symbolic size behind another one, or behind a number, has no affine subscript")
            below *= n
    return out
