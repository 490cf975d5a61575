"""Layouts as maps from an array's elements to the places where they are stored, for any sizes.

`Layout` (`poly.rewriting.relayout`) is what kernels are rewritten with; here it is an isl map, so that composition,
inverse and equality are isl's, sizes may be parameters, and padding is a set: the places that are no element's.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.poly.tree import Layout

Extents = Sequence[int | str]


def layout_map(sizes: Extents, layout: Layout) -> isl.Map:
    """From an element of an array of `sizes` (numbers, or names of parameters) to its place."""
    names = [f"i{k}" for k in range(len(sizes))]
    places = [
        f"o{k} = {_part(names[dim], div, mod)}" for k, (dim, div, mod) in enumerate(layout)
    ]  # fmt: skip
    inside = [f"0 <= {n} < {size}" for n, size in zip(names, sizes, strict=True)]
    to = ", ".join(f"o{k}" for k in range(len(layout)))
    where = " and ".join([*inside, *places]) or "true"
    return isl.Map(f"{_parameters(sizes)}{{ [{', '.join(names)}] -> [{to}] : {where} }}")


def stored_places(sizes: Extents, layout: Layout) -> isl.Set:
    """All places that are allocated: elements and padding."""
    names = [f"o{k}" for k in range(len(layout))]
    bounds = [
        f"0 <= {n} < {mod}" if mod else f"0 <= {n} < floor(({sizes[dim]} + {div - 1})/{div})"
        for n, (dim, div, mod) in zip(names, layout, strict=True)
    ]
    return isl.Set(f"{_parameters(sizes)}{{ [{', '.join(names)}] : {' and '.join(bounds) or 'true'} }}")


def padding(sizes: Extents, layout: Layout) -> isl.Set:
    """The places that no element has."""
    return stored_places(sizes, layout).subtract(layout_map(sizes, layout).range())


def is_one_to_one(sizes: Extents, layout: Layout) -> bool:
    """Whether every element has one place of its own, inside what is allocated, for all sizes: then the layout is a
    bijection between the elements and all places but the padding."""
    moved = layout_map(sizes, layout)
    inside = moved.range().is_subset(stored_places(sizes, layout))
    return bool(moved.is_single_valued() and moved.is_injective() and inside)


def cancels(first: isl.Map, second: isl.Map) -> bool:
    """Whether `second` after `first` leaves every element where it was."""
    both = first.apply_range(second)
    return bool(both.is_equal(first.domain().identity()))


def _part(name: str, div: int, mod: int) -> str:
    whole = name if div == 1 else f"floor({name}/{div})"
    return f"({whole}) mod {mod}" if mod else whole


def _parameters(sizes: Extents) -> str:
    names = sorted({n for n in sizes if isinstance(n, str)})
    return f"[{', '.join(names)}] -> " if names else ""
