"""`x[...]` of a tensor: numbers, slices, new axes, and one list or tensor of positions."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np

from polyc.graph_driver.building.construction import Value
from polyc.graph_driver.python_graphs.recording import Recording
from polyc.poly.dtypes import bool_, i64


def is_basic(index: Any) -> bool:
    """Whether NumPy would give a view: numbers, slices, new axes, `...`."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(isinstance(p, (int, np.integer, slice, EllipsisType)) or p is None for p in parts)


def chosen(r: Recording, x: Value, index: Any) -> Value:
    """What an index chooses.

    Raises:
        ModelError: it is out of range, is a mask, or has several lists of positions.
    """
    parts = _complete(r, x, list(index) if isinstance(index, tuple) else [index])
    positions = [p for p in parts if not (p is None or isinstance(p, (int, np.integer, slice)))]
    if len(positions) > 1:
        r.refuse("an index with several lists of positions: choose along one axis at a time (np.take)")
    cuts: list[tuple[int, Any, Any, int]] = []
    dropped: list[int] = []
    gathered: tuple[int, Any] | None = None
    axis = 0
    for part in parts:
        if part is None:
            continue
        if isinstance(part, slice):
            start, end, step = _range(r, x, axis, part)
            if (start, end, step) != (0, None, 1):
                cuts.append((axis, start, end, step))
        elif isinstance(part, (int, np.integer)):
            at = _within(r, x, axis, int(part))
            cuts.append((axis, at, at + 1, 1))
            dropped.append(axis)
        else:
            gathered = axis, part
        axis += 1
    made = _sliced(r, x, cuts) if cuts else x
    if gathered is not None:
        if dropped:
            r.refuse("an index with a number and a list of positions: choose one after the other")
        made = _gathered(r, made, *gathered)
    if dropped:
        made = r.op("Squeeze", made, r.integers(dropped))
    return _with_new_axes(r, made, parts, 1 if gathered is None else positions[0])


def _sliced(r: Recording, x: Value, cuts: list[tuple[int, Any, Any, int]]) -> Value:
    """Parts of axes: each with start, end (None: to the end) and step."""
    axes, starts, ends, steps = (list(column) for column in zip(*cuts, strict=True))
    final = [(1 << 62 if s > 0 else -(1 << 62)) if e is None else e for e, s in zip(ends, steps, strict=True)]
    return r.op("Slice", x, *map(r.integers, (starts, final, axes, steps)))


def _complete(r: Recording, x: Value, parts: list[Any]) -> list[Any]:
    """With a slice for each axis that the index does not name."""
    named = sum(p is not None and not isinstance(p, EllipsisType) for p in parts)
    if named > x.rank:
        r.refuse(f"an index with {named} places for a tensor of shape {list(x.shape)}")
    rest = [slice(None)] * (x.rank - named)
    dots = [k for k, p in enumerate(parts) if isinstance(p, EllipsisType)]
    if len(dots) > 1:
        r.refuse("an index with several '...'")
    return parts[: dots[0]] + rest + parts[dots[0] + 1 :] if dots else parts + rest


def _range(r: Recording, x: Value, axis: int, part: slice) -> tuple[Any, Any, int]:
    """Start, end (None: to the end) and step as ONNX's Slice takes them: of numbers clipped to the axis."""
    extent = x.shape[axis]
    step = 1 if part.step is None else int(part.step)
    if isinstance(extent, int):
        start, end, step = part.indices(extent)
        return start, (None if step > 0 and end == extent or step < 0 and end < 0 else end), step
    if step < 0 or any(isinstance(n, int) and n < 0 for n in (part.start, part.stop) if n is not None):
        start = part.start
        return (0 if step > 0 else -1) if start is None else start, part.stop, step
    return part.start or 0, part.stop, step


def _within(r: Recording, x: Value, axis: int, at: int) -> int:
    extent = x.shape[axis]
    if not isinstance(extent, int):
        if at < 0:
            r.refuse("a negative index of a symbolic axis: take x[-1:] and reshape")
        return at
    if not -extent <= at < extent:
        r.refuse(f"index {at} is outside of axis {axis}, which has {extent} elements")
    return at % extent


def _gathered(r: Recording, x: Value, axis: int, positions: Any) -> Value:
    found = r.operand(np.asarray(positions) if isinstance(positions, list) else positions)
    if found.dtype == bool_:
        r.refuse("an index by a mask has as many results as data decide: take np.where")
    if found.dtype.is_float:
        r.refuse(f"an index of type {found.dtype}: positions are integers")
    return r.op("Gather", x, r.cast(found, i64), axis=axis)


def _with_new_axes(r: Recording, made: Value, parts: list[Any], positions: Any) -> Value:
    """New axes where the index has None."""
    new, at = [], 0
    for part in parts:
        if part is None:
            new.append(at)
            at += 1
        elif isinstance(part, slice):
            at += 1
        elif not isinstance(part, (int, np.integer)):
            at += positions.rank if isinstance(positions, Value) else np.ndim(positions)
    return r.op("Unsqueeze", made, r.integers(new)) if new else made
