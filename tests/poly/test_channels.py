"""Images stored with their channels last or in blocks: the same results, and nothing of the padding in them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from execute import execute

from polyc.frontend_dsl.library.convolution import make_conv2d, make_depthwise, make_pointwise
from polyc.frontend_dsl.library.elementwise import make_binary
from polyc.frontend_dsl.library.pooling import make_max_pool
from polyc.poly.dtypes import f32
from polyc.poly.errors import ScopError
from polyc.poly.legality import check
from polyc.poly.rewriting.channels import LAST, Channels, store_channels
from polyc.poly.rewriting.stored import lay_out, taken_out
from polyc.poly.scop import Scop
from polyc.poly.verify import verify


def shape_of(scop: Scop, name: str) -> tuple[int, ...]:
    return tuple(int(e.value) for e in scop.arrays[name].shape)


def differ(scop: Scop, wanted: dict[str, Channels], constants: frozenset[str]) -> None:
    """Compare both on random data; what is padding in images is NaN."""
    rng = np.random.default_rng()
    given = {a: rng.integers(-9, 9, shape_of(scop, a)).astype(np.float32) for a in scop.args}
    want = execute(scop, given)
    moved, layouts = store_channels(scop, wanted, constants)
    verify(moved)
    assert set(wanted) <= set(layouts) <= set(wanted) | constants
    stored = {}
    for a in scop.args:
        stored[a] = lay_out(given[a], layouts[a]) if a in layouts else given[a]
        if a in wanted and a in layouts:
            there = lay_out(np.ones_like(given[a]), layouts[a])
            stored[a] = np.where(there == 1, stored[a], np.float32(np.nan))
    got = execute(moved, stored)
    for r in scop.results:
        value = taken_out(got[r], want[r].shape, layouts[r]) if r in layouts else got[r]
        np.testing.assert_array_equal(value, want[r])


CASES = {
    "pointwise": (lambda c, m: make_pointwise(f32, 2, (c, m), 6, True), frozenset("FB")),
    "dense": (lambda c, m: make_conv2d(f32, 1, (c, m), (3, 3), (2, 3), (2, 1), (1, 1), (1, 1), (0, 1), True),
              frozenset("FB")),
    "depthwise": (lambda c, m: make_depthwise(f32, 1, c, (4, 3), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), True),
                  frozenset("FB")),
    "pool": (lambda c, m: make_max_pool(f32, c, (5, 4), (3, 2), (3, 3), (2, 2), (1, 1), (1, 1)), frozenset()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("channels", [(4, 8), (6, 5), (8, 3)])
def test_the_same_results(name: str, channels: tuple[int, int]) -> None:
    make, constants = CASES[name]
    scop = make(*channels).scop()
    at = 0 if name == "pool" else 1
    (result,) = scop.results
    ways = [(4, 4), (LAST, LAST), (4, LAST), (LAST, 4), (4, None), (None, 4), (None, LAST)]
    for x, y in ways if name in ("pointwise", "pool") else random.sample(ways, 2):
        wanted = {n: Channels(at, b) for n, b in (("X", x), (result, y)) if b is not None}
        differ(scop, wanted, constants)


def test_loops_of_full_blocks_are_plain() -> None:
    """Cut iterators are subscripts themselves, and the order of execution stays legal."""
    scop = make_depthwise(f32, 1, 8, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), False).scop()
    moved, _ = store_channels(scop, {"X": Channels(1, 4), "Y": Channels(1, 4)}, frozenset("F"))
    text = str(moved)
    assert "//" not in text.replace("// ", "") and shape_of(moved, "F") == (2, 4, 3, 3)
    assert shape_of(moved, "P") == (1, 2, 6, 6, 4)
    check(moved, moved.tree)


def test_an_operand_that_stays_is_read_where_it_is() -> None:
    """The other operand of a sum keeps its layout; with padding there is nothing to read for the last block."""
    for channels in (8, 6):
        shape = (1, channels, 3, 2)
        scop = make_binary(lambda a, b: a + b, (f32, f32), f32, (shape, shape), shape).scop()
        first, second = scop.args
        (y,) = scop.results
        differ(scop, {first: Channels(1, 4), y: Channels(1, 4)}, frozenset())
        differ(scop, {second: Channels(1, LAST), y: Channels(1, 4)}, frozenset())


def test_symbolic_sizes_are_refused() -> None:
    from small_operators import matmul

    scop = matmul.scop()
    with pytest.raises(ScopError, match="symbolic"):
        store_channels(scop, {scop.args[0]: Channels(0, 4)}, frozenset())
