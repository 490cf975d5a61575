"""Regions of tensors, as boxes: under another shape, together, and through the loops of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import islpy as isl

from polyc.graph_driver.slices.reshaping import shared_runs
from polyc.poly.forms.element_sets import Run, box
from polyc.poly.origins import origins
from polyc.poly.scop import Scop

Region = tuple[tuple[int, int], ...]
"""Of each dimension the first index and the one behind the last."""


def whole(shape: Sequence[int]) -> Region:
    """All elements."""
    return tuple((0, n) for n in shape)


def together(one: Region | None, other: Region) -> Region:
    """The smallest box that holds both."""
    return other if one is None else tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def slices(region: Region) -> tuple[slice, ...]:
    """As NumPy's subscripts."""
    return tuple(slice(a, b) for a, b in region)


def size(region: Region) -> int:
    """How many elements it has."""
    return prod(b - a for a, b in region)


def hull(elements: isl.Set) -> Region | None:
    """The smallest box around a bounded set without parameters; None: it is empty."""
    if elements.is_empty():
        return None
    rank = elements.dim(isl.dim_type.set)
    ends = [(elements.dim_min_val(k).to_python(), elements.dim_max_val(k).to_python()) for k in range(rank)]
    return tuple((int(low), int(high) + 1) for low, high in ends)


def under(region: Region, before: Sequence[int], after: Sequence[int]) -> Region:
    """A box that holds the same elements under another shape, whose elements lie in the same order by rows."""
    found: list[tuple[int, int]] = []
    for first, second in shared_runs(before, after):
        if [before[d] for d in first] == [after[d] for d in second]:
            found += [region[d] for d in first]
            continue
        low = high = 0
        for d in first:
            low, high = low * before[d] + region[d][0], high * before[d] + region[d][1] - 1
        found += _between(low, high, [after[d] for d in second])
    return tuple(found)


def _between(low: int, high: int, shape: Sequence[int]) -> list[tuple[int, int]]:
    """The smallest box with the elements from position `low` to `high`, by rows."""
    found: list[tuple[int, int]] = []
    for d, n in enumerate(shape):
        inner = prod(shape[d + 1 :])
        first, last = low // inner, high // inner
        found.append((first, last + 1))
        if first != last:
            return found + [(0, n) for n in shape[d + 1 :]]
        low, high = low % inner, high % inner
    return found


def elements(name: str, region: Region) -> isl.Set:
    """The elements of an array in a region."""
    if not size(region) and region:
        return isl.Set(f"{{ {name}[{', '.join(f'i{d}' for d in range(len(region)))}] : 1 = 0 }}")
    return box(name, [[Run(a, b - 1)] for a, b in region])


def changed_results(scop: Scop, changed: Mapping[str, Region]) -> dict[str, Region]:
    """Boxes around the elements of results that depend on some elements of arguments.

    Raises:
        PolycError: the chains of values have no exact form.
    """
    sets = {n: elements(n, region) for n, region in changed.items()}
    found = {n: hull(s) for n, s in origins(scop).forward(sets).items()}
    return {n: region for n, region in found.items() if region is not None}
