"""The elements that the lanes of a vector access touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from polyc.emit.loop_ir.loops import Ramp
from polyc.poly.errors import BuildError
from polyc.poly.expr import Expr

Env = dict[str, Any]
Run = Callable[[Env], Any]
AccessObserver = Callable[[str, tuple[int, ...], bool], None]
Places = Callable[[Env, Any], "tuple[Any, ...] | None"]


class OutOfBounds(BuildError):
    """An access outside its buffer: a wrong schedule, pass or Scop."""

    code = "P307"


def places(
    array: str, index: tuple[Expr, ...], expr: Callable[[Expr], Run], accesses: AccessObserver | None, write: bool
) -> Places:
    """`at(env, on)`: the checked subscripts, as NumPy takes them, of the lanes where `on` (None: of all lanes); None if
    there is no such lane. Subscripts are evaluated once for all lanes; `accesses` hears of each lane in turn.

    Raises (when called):
        OutOfBounds: a lane leaves the buffer.
    """
    parts, wide, key = [expr(e) for e in index], [e.lanes > 1 for e in index], "@" + array

    def each(env: Env, on: Any) -> tuple[Any, ...] | None:
        if on is not None and not on.any():
            return None
        at = [p(env) for p in parts]
        if on is not None:
            at = [x[on] if many else x for x, many in zip(at, wide)]
        shape = env[key].shape
        for x, many, n in zip(at, wide, shape):
            if not (0 <= x.min() and x.max() < n if many else 0 <= x < n):
                raise _outside(array, at, shape, on)
        if accesses is not None:
            for element in elements(at):
                accesses(array, element, write)
        return tuple(at)

    axes = [k for k, many in enumerate(wide) if many]
    ramp = index[axes[0]] if len(axes) == 1 else None
    if not isinstance(ramp, Ramp) or ramp.stride != 1 or accesses is not None:
        return each
    axis, count, starts = axes[0], ramp.count, [*parts]
    starts[axis] = expr(ramp.base)

    def side_by_side(env: Env, on: Any) -> tuple[Any, ...] | None:
        if on is not None:
            return each(env, on)
        at = [p(env) for p in starts]
        shape, first = env[key].shape, at[axis]
        for x, n in zip(at, shape):
            if not 0 <= x < n:
                return each(env, on)  # which says the lane
        if first + count > shape[axis]:
            return each(env, on)
        at[axis] = slice(first, first + count)
        return tuple(at)

    return side_by_side


def elements(at: list[Any] | tuple[Any, ...]) -> Iterator[tuple[int, ...]]:
    """The subscripts of one lane after the other."""
    lanes = [np.arange(x.start, x.stop) if isinstance(x, slice) else x for x in at]
    for element in zip(*np.broadcast_arrays(*lanes)):
        yield tuple(map(int, element))


def _outside(array: str, at: list[Any], shape: tuple[int, ...], on: Any) -> OutOfBounds:
    """The first active lane outside."""
    found = (k for k, element in enumerate(elements(at)) if not all(0 <= i < n for i, n in zip(element, shape)))
    k = next(found)
    lane = k if on is None else int(np.flatnonzero(on)[k])
    return OutOfBounds(f"lane {lane}: {array}{list(list(elements(at))[k])} is outside {list(shape)}")
