"""Models split over ranks of a real MPI: results of one process, and exactly the bytes that were predicted."""

from __future__ import annotations

import pytest

from tests.parallel.mpi_runs import launch

CLOSE = 2e-6  # of the largest element: sums of f32 in another order


ALL = ["mlp", "block", "images", "images:2", "images:0", "block:1", "experts"]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_split_models_are_the_whole_models(ranks: int) -> None:
    names = ["images:2", "block:1", "experts"] if ranks == 2 else ALL
    said = launch(ranks, "split", *names)
    assert [s["rank"] for s in said] == list(range(ranks))
    for s in said:
        assert set(s["found"]) == set(names)
        for name, found in s["found"].items():
            assert found["error"] <= CLOSE, name
            assert found["sent"] == found["predicted"], name
    assert "Exchange" in said[0]["found"]["images:2"]["kinds"]  # halos
