"""Layouts as maps from an array's elements to the places where they are stored, for any sizes.

A format is written as a map of isl (`stored`): `floor(c/8)` and `c mod 8` of a dimension in blocks. What the rest of
the compiler works with is derived from it: the parts `(dim, div, mod)` of `polyc.poly.rewriting.stored`, by which
subscripts are rewritten and loaded models (which know no isl) find elements. Composition, inverse and equality are
isl's, sizes may be parameters, and padding is a set: the places that are no element's.

Limits: each coordinate of a place comes from one dimension, as `floor(i/div) mod m` or `floor(i/div)`; skewed and
space-filling orders are maps, too, but no layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import islpy as isl

from polyc.poly.errors import ScopError
from polyc.poly.tree import Layout

Extents = Sequence[int | str]


@cache
def stored(rank: int, *places: str) -> Layout:
    """The layout of arrays of this rank that an isl map gives: its places as expressions of `i0`, `i1`, ...

    >>> stored(4, "i0", "floor(i1/8)", "i2", "i3", "i1 mod 8")
    ((0, 1, 0), (1, 8, 0), (2, 1, 0), (3, 1, 0), (1, 1, 8))

    Raises:
        ScopError: a place has not the form that layouts have.
    """
    names = ", ".join(f"i{k}" for k in range(rank))
    moved = isl.MultiPwAff(f"{{ [{names}] -> [{', '.join(places)}] }}")
    inside = isl.Set(f"{{ [{names}] : {' and '.join(f'i{k} >= 0' for k in range(rank)) or 'true'} }}")
    return tuple(_part_of(moved.get_at(k).intersect_domain(inside), rank, places[k]) for k in range(len(places)))


def whole(rank: int, *places: str) -> Layout:
    """`stored`, proved: for all sizes each element has one place of its own, inside what is allocated.

    Raises:
        ScopError: two elements have one place, or some have none.
    """
    layout = stored(rank, *places)
    if not _proved(rank, layout):
        raise ScopError(f"({', '.join(places)}) gives two elements one place, or one beyond the array")
    return layout


@cache
def _proved(rank: int, layout: Layout) -> bool:
    return is_one_to_one([f"n{k}" for k in range(rank)], layout)


def in_order(dims: Sequence[int]) -> Layout:
    """A transposition: the dimensions in this order."""
    return whole(len(dims), *(f"i{d}" for d in dims))


def in_panels(rank: int, dim: int, width: int) -> Layout:
    """Panels of `width`: the cut dimension outermost, its elements in a panel innermost."""
    rest = (f"i{k}" for k in range(rank) if k != dim)
    return whole(rank, f"floor(i{dim}/{width})", *rest, f"i{dim} mod {width}")


def _part_of(place: isl.PwAff, rank: int, text: str) -> tuple[int, int, int]:
    """The part `(dim, div, mod)` that is equal to a coordinate for all elements. Raises `ScopError`."""
    pieces = place.get_pieces()
    dims = [k for k in range(rank) if len(pieces) == 1 and pieces[0][1].involves_dims(isl.dim_type.in_, k, 1)]
    if len(dims) == 1:
        aff, names = pieces[0][1], ", ".join(f"i{k}" for k in range(rank))
        cuts = {int(aff.get_div(k).get_denominator_val().to_python()) for k in range(aff.dim(isl.dim_type.div))} | {1}
        for div, above in ((d, a) for d in sorted(cuts) for a in (0, *sorted(cuts)) if not a or (a > d and a % d == 0)):
            mod = above // div
            formed = isl.PwAff(f"{{ [{names}] -> [{_part(f'i{dims[0]}', div, mod)}] }}")
            if place.is_equal(formed.intersect_domain(place.domain())):
                return dims[0], div, mod
    raise ScopError(f"'{text}' is no place of a layout: that has the form floor(i/div) mod m, of one dimension")


def layout_map(sizes: Extents, layout: Layout) -> isl.Map:
    """From an element of an array of `sizes` (numbers, or names of parameters) to its place."""
    names = [f"i{k}" for k in range(len(sizes))]
    places = [f"o{k} = {place}" for k, place in enumerate(places_of(layout, names))]
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


def places_of(layout: Layout, names: Sequence[str]) -> list[str]:
    """The coordinates of the place of an element whose subscripts have these names, as isl writes them."""
    return [_part(names[dim], div, mod) for dim, div, mod in layout]


def _part(name: str, div: int, mod: int) -> str:
    whole = name if div == 1 else f"floor({name}/{div})"
    return f"({whole}) mod {mod}" if mod else whole


def _parameters(sizes: Extents) -> str:
    names = sorted({n for n in sizes if isinstance(n, str)})
    return f"[{', '.join(names)}] -> " if names else ""
