"""Stencils on blocks: halos as the operator reads, bits of one rank."""

from __future__ import annotations

import pytest

from polyc import ArgumentError
from polyc.graph_driver.parallel.stencils import Stencil
from tests.parallel.heat import heat
from tests.parallel.mpi_runs import launch


@pytest.mark.parametrize("tile", [1, 2, 4])
def test_halos_grow_with_the_tile(tile: int) -> None:
    blocks = Stencil(heat, (40, 12, 10), (4, 1, 1), tile)
    assert blocks.needs[1] == ((10 - tile, 20 + tile), (0, 12), (0, 10))
    assert blocks.needs[0] == ((0, 10 + tile), (0, 12), (0, 10))
    assert blocks.halo(1) == 2 * tile * 12 * 10 * 4
    assert sum(blocks.sent(r) for r in range(4)) == sum(blocks.halo(r) for r in range(4))


def test_heat_on_four_ranks_has_the_bits_of_one() -> None:
    said = launch(4, "heat", "12", "1", "3")
    assert len(said) == 4
    for s in said:
        assert len(s["found"]) == 4
        for name, found in s["found"].items():
            assert found["equal"], name
            assert found["sent"] == found["predicted"] > 0, name


def test_grids_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="does not divide"):
        Stencil(heat, (4, 4, 4), (5, 1, 1))
