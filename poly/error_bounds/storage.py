"""Arrays of a Scop as enclosures: what accesses read and write of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polyc.poly.error_bounds.enclosure import Array, Enclosure, anything
from polyc.poly.error_bounds.iterations import Grid
from polyc.poly.expr import Binary, Const, Expr, Unary, Var
from polyc.poly.records import dataclass

UNWRITTEN = "an element that may be read before it is written"


@dataclass(frozen=True, slots=True)
class Line:
    """A subscript `factor * iterator + constant`; no iterator: a number."""

    iterator: str | None
    factor: int
    constant: int


def line(e: Expr) -> Line | None:
    """The subscript in this form, if it has it."""
    match e:
        case Const() if isinstance(e.value, int):
            return Line(None, 0, e.value)
        case Var():
            return Line(e.name, 1, 0)
        case Unary(op="neg"):
            a = line(e.a)
            return None if a is None else Line(a.iterator, -a.factor, -a.constant)
        case Binary(op="+" | "-" | "*"):
            a, b = line(e.a), line(e.b)
            if a is None or b is None:
                return None
            if e.op == "*":
                a, b = (b, a) if a.iterator is None else (a, b)
                return Line(a.iterator, a.factor * b.constant, a.constant * b.constant) if b.iterator is None else None
            if a.iterator is not None and b.iterator is not None:
                return None
            sign = -1 if e.op == "-" else 1
            return Line(a.iterator or b.iterator, a.factor + sign * b.factor, a.constant + sign * b.constant)
    return None


def lines(index: Sequence[Expr]) -> list[Line] | None:
    """All subscripts as lines of different iterators; None where they are not."""
    found = [line(e) for e in index]
    iterators = [f.iterator for f in found if f is not None and f.iterator is not None and f.factor]
    if None in found or len(set(iterators)) < len(iterators):
        return None
    return [f for f in found if f is not None]


class Memory:
    """The arrays of a Scop by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, Enclosure] = {}

    def allocate(self, name: str, shape: tuple[int, ...]) -> None:
        """An array of which nothing is known yet."""
        self.arrays[name] = anything(shape, UNWRITTEN)

    def read(self, name: str, index: Sequence[Expr], grid: Grid) -> Enclosure:
        """The elements, on the axes of the grid."""
        found, rank = self.arrays[name], len(grid.iters)
        shape = np.shape(found.lo)
        if not shape:
            return found.each(lambda a: np.asarray(a).reshape((1,) * rank))
        sliced = _slices(index, grid, shape)
        if sliced is not None:
            parts, axes = sliced
            order = [*axes, *(d for d in range(rank) if d not in axes)]

            def view(a: Array) -> Array:
                part = a[parts]
                return part.reshape(part.shape + (1,) * (rank - part.ndim)).transpose(np.argsort(order))

            return found.each(view)
        places = tuple(np.clip(grid.integers(e), 0, n - 1) for e, n in zip(index, shape, strict=True))
        return found.each(lambda a: a[places])

    def write(self, name: str, index: Sequence[Expr], grid: Grid, value: Enclosure) -> None:
        """Store values, which have the axes of the grid, where the grid's mask allows it."""
        old = self.arrays[name]
        shape = np.shape(old.lo)
        places = [grid.integers(e) for e in index]
        shapes = [np.shape(value.lo), *(np.shape(p) for p in places)]
        full = np.broadcast_shapes(*shapes, () if grid.mask is None else np.shape(grid.mask))
        store = _Store(shape, full, places, grid.mask, _slices(index, grid, shape) if grid.mask is None else None)
        if store.whole:
            made = value.each(lambda new: store.into(np.empty(shape), new))
        else:
            pairs = [(old.lo, value.lo), (old.hi, value.hi), (old.clo, value.clo), (old.chi, value.chi)]
            parts = [store.into(np.array(a), new) for a, new in (*pairs, (old.err, value.err))]
            made = Enclosure(parts[0], parts[1], parts[2], parts[3], parts[4])
        unknown = bool(np.isinf(made.err).any())
        why = (value.why or (old.why if not store.whole else "")) if unknown else ""
        self.arrays[name] = Enclosure(made.lo, made.hi, made.clo, made.chi, made.err, why)


class _Store:
    """Where values on the axes of a grid (`full`) go in an array of some shape."""

    def __init__(
        self, shape: tuple[int, ...], full: tuple[int, ...], places: Sequence[Array], mask: Array | None,
        sliced: tuple[tuple[int | slice, ...], list[int]] | None,
    ) -> None:  # fmt: skip
        self.shape, self.full = shape, full
        self.parts, self.axes = sliced if sliced is not None else ((), [])
        free = all(n == 1 for d, n in enumerate(full) if d not in self.axes)
        self.sliced = sliced is not None and bool(shape) and free
        self.whole = self.sliced and math.prod(full) == math.prod(shape)
        self.spots = tuple(np.broadcast_to(p, full) for p in places)
        self.mask = None if mask is None else np.broadcast_to(mask, full)

    def into(self, target: Array, new: Array) -> Array:
        """The array with the values stored in it."""
        values = np.broadcast_to(new, self.full)
        if self.sliced:
            order = [*self.axes, *(d for d in range(len(self.full)) if d not in self.axes)]
            target[self.parts] = values.transpose(order).reshape([self.full[d] for d in self.axes])
        elif not self.shape:
            target[...] = values.reshape(-1)[-1] if self.mask is None or self.mask.any() else target
        elif self.mask is None:
            target[self.spots] = values
        else:
            target[tuple(p[self.mask] for p in self.spots)] = values[self.mask]
        return target


def _slices(
    index: Sequence[Expr], grid: Grid, shape: tuple[int, ...]
) -> tuple[tuple[int | slice, ...], list[int]] | None:
    """Subscripts as NumPy's slices and the axis of the grid that each of them is; None where they are not."""
    found = lines(index)
    if found is None:
        return None
    parts: list[int | slice] = []
    axes: list[int] = []
    for f, n in zip(found, shape, strict=True):
        if f.iterator is None or not f.factor:
            if not 0 <= f.constant < n:
                return None
            parts.append(f.constant)
            continue
        axis = grid.iters.index(f.iterator)
        first = f.constant + f.factor * grid.first[axis]
        last = first + f.factor * (grid.extents[axis] - 1)
        if min(first, last) < 0 or max(first, last) >= n:
            return None
        stop = last + (1 if f.factor > 0 else -1)
        parts.append(slice(first, stop if stop >= 0 else None, f.factor))
        axes.append(axis)
    return tuple(parts), axes
