"""Layouts as isl maps: bijections for all sizes, padding as a set, pairs that cancel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polyc.poly.errors import ScopError
from polyc.poly.forms.layout_maps import (
    cancels,
    in_order,
    in_panels,
    is_one_to_one,
    layout_map,
    padding,
    places_of,
    stored,
    stored_places,
    whole,
)  # fmt: skip
from polyc.poly.rewriting.channels import LAST, Channels
from polyc.poly.rewriting.stored import Layout, is_layout, laid_out_shape, lay_out, seen_by, taken_out

SYMBOLIC = ("N", "C", "H", "W")
NCHW: Layout = tuple((k, 1, 0) for k in range(4))
NHWC = Channels(1, LAST).layout(4)
BLOCKED = {c: Channels(1, c).layout(4) for c in (4, 8, 16)}
ALL = [NCHW, NHWC, *BLOCKED.values()]


@pytest.mark.parametrize("layout", ALL)
def test_a_bijection_for_all_sizes(layout: Layout) -> None:
    assert is_one_to_one(SYMBOLIC, layout)
    places = layout_map(SYMBOLIC, layout).range()
    assert places.is_disjoint(padding(SYMBOLIC, layout))
    assert places.union(padding(SYMBOLIC, layout)).is_equal(stored_places(SYMBOLIC, layout))


def test_padding_is_in_the_last_block_alone() -> None:
    for layout in (NCHW, NHWC):
        assert padding(SYMBOLIC, layout).is_empty()
    for c, layout in BLOCKED.items():
        assert not padding(SYMBOLIC, layout).is_empty()
        assert padding(("N", 2 * c, "H", "W"), layout).is_empty()
        for channels in range(1, 3 * c):
            exact = padding((1, channels, 2, 2), layout)
            points = 4 * (-channels % c)
            assert (0 if exact.is_empty() else int(exact.count_val().to_python())) == points


def test_what_is_no_bijection_is_seen() -> None:
    for layout in (((0, 4, 0), (0, 1, 3)), ((0, 2, 0),), ((0, 4, 0), (0, 1, 2)), ((1, 1, 0), (1, 1, 0))):
        sizes = ("N", "M")[: 1 + max(d for d, _, _ in layout)]
        assert not is_one_to_one(sizes, layout)
        assert not is_layout((7,) * len(sizes), layout)
    for layout in ALL:
        assert is_layout((1, 7, 3, 3), layout)


def test_pairs_cancel_when_their_composition_is_the_identity() -> None:
    """t2 after t1 for every pair: there and back is nothing, whatever the layouts; another way back is not."""
    for there, back in itertools.product(ALL, ALL):
        first, second = layout_map(SYMBOLIC, there), layout_map(SYMBOLIC, back).reverse()
        if len(there) == len(back):
            assert cancels(first, second) == (there == back)
        else:
            assert not first.range().get_space().is_equal(second.domain().get_space())
    first = layout_map(("N", 16, "H", "W"), BLOCKED[8])
    swapped = layout_map((16, "N", "H", "W"), Channels(0, 8).layout(4))
    assert not cancels(first, swapped.reverse())


def test_data_go_there_and_back() -> None:
    rng = np.random.default_rng()
    for layout in ALL:
        shape = tuple(int(n) for n in rng.integers(1, 20, 4))
        data = rng.standard_normal(shape)
        stored = lay_out(data, layout)
        assert stored.shape == laid_out_shape(shape, layout)
        assert np.array_equal(taken_out(stored, shape, layout), data)


def test_what_only_cuts_and_turns_is_seen_without_a_copy() -> None:
    data = np.random.default_rng().standard_normal((32, 8))
    panels = ((0, 16, 0), (1, 1, 0), (0, 1, 16))
    assert np.shares_memory(seen_by(data, panels), data)
    assert not np.shares_memory(lay_out(data, panels), data)
    assert not np.shares_memory(seen_by(data[:31], panels), data)  # the last block has padding


def test_parts_are_derived_from_maps_and_stand_for_them() -> None:
    """Nested blocks of any depth: the map's parts give the map back, and move data where the map says."""
    rng = np.random.default_rng()
    for _ in range(40):
        rank = int(rng.integers(1, 4))
        parts: list[str] = []
        for d in range(rank):
            cuts = np.cumprod(rng.integers(2, 5, rng.integers(0, 3))).tolist()
            for at, cut in zip([1, *cuts], [*cuts, 0]):
                inner = f"floor(i{d}/{at})" if at > 1 else f"i{d}"
                parts.append(f"({inner}) mod {cut // at}" if cut else inner)
        places = [parts[k] for k in rng.permutation(len(parts))]
        layout = whole(rank, *places)
        assert stored(rank, *places_of(layout, [f"i{k}" for k in range(rank)])) == layout
        shape = tuple(int(n) for n in rng.integers(1, 9, rank))
        data = np.arange(1, 1 + np.prod(shape)).reshape(shape)
        moved = lay_out(data, layout)
        assert is_layout(shape, layout)
        for element in itertools.product(*map(range, shape)):
            place = eval(", ".join(places).replace("floor", "").replace("/", "//").replace("mod", "%") + ",",
                         {f"i{k}": n for k, n in enumerate(element)})  # fmt: skip
            assert moved[place] == data[element]


def test_formats_of_the_product_are_maps() -> None:
    assert Channels(1, 8).layout(4) == whole(4, "i0", "floor(i1/8)", "i2", "i3", "i1 mod 8") == BLOCKED[8]
    assert Channels(1, LAST).layout(4) == in_order((0, 2, 3, 1)) == NHWC
    assert in_panels(2, 1, 16) == ((1, 16, 0), (0, 1, 0), (1, 1, 16))


@pytest.mark.parametrize("place", ["i0 + i1", "2*i0", "floor((i0 + 1)/2)", "-i0", "3", "i0 mod 4 + 1"])
def test_what_is_no_layout_is_refused(place: str) -> None:
    with pytest.raises(ScopError, match="is no place of a layout"):
        stored(2, place, "i1")


def test_what_is_no_bijection_is_no_format() -> None:
    for places in (("floor(i0/4)", "i1", "i0 mod 3"), ("floor(i0/4)", "i1", "i0 mod 2"), ("i0",), ("i0 mod 4", "i1")):
        with pytest.raises(ScopError, match="two elements one place"):
            whole(2, *places)
