"""An array seen over another shape of the same row-major memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from polyc.poly.dtypes import i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Const, Expr, Load, const_int, rewrite
from polyc.poly.scop import Scop, Statement

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


def reshaped(scop: Scop, array: str, shape: Sequence[int]) -> Scop:
    """The same algorithm with `array` (constant sizes) declared as `shape`, its memory unchanged.

    Raises:
        ScopError: the array's shape is symbolic, or has another number of elements.
    """
    declared = scop.arrays[array]
    if not all(isinstance(e, Const) for e in declared.shape):
        raise ScopError(f"cannot reshape '{array}': its shape is symbolic")
    old = tuple(int(e.value) for e in declared.shape if isinstance(e, Const))
    new = tuple(shape)
    if old == new:
        return scop
    if prod(old) != prod(new):
        raise ScopError(f"cannot reshape '{array}' from {list(old)} to {list(new)}")
    cuts = blocks(old, new) if prod(old) else None
    if cuts is None:
        cuts = [(tuple(range(len(old))), tuple(range(len(new))))]

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

    arrays = {**scop.arrays, array: replace(declared, shape=tuple(const_int(n) for n in new))}
    return replace(scop, arrays=arrays, statements={n: moved(s) for n, s in scop.statements.items()})


def _regrouped(index: Sequence[Expr], old: Sequence[int], new: Sequence[int]) -> list[Expr]:
    """Subscripts of one run of axes: one number in mixed radix `old`, written in radix `new`."""
    kept = [(e, n) for e, n in zip(index, old) if n != 1]
    linear: Expr = const_int(0)
    for k, (e, n) in enumerate(kept):
        linear = e if k == 0 else Binary("+", Binary("*", linear, const_int(n), i64), e, i64)
    wanted = [k for k, n in enumerate(new) if n != 1]
    out: list[Expr] = [const_int(0)] * len(new)
    below = 1
    for k in reversed(wanted):
        e = linear if below == 1 else Binary("//", linear, const_int(below), i64)
        out[k] = e if k == wanted[0] else Binary("%", e, const_int(new[k]), i64)
        below *= new[k]
    return out
