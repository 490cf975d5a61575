"""Data-parallel training over ranks of a real MPI: gradients of one process, one message for each group of them."""

from __future__ import annotations

import pytest

from tests.parallel.mpi_runs import launch

CLOSE = 1e-6  # of each gradient's largest element


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_are_those_of_one_process(ranks: int) -> None:
    said = launch(ranks, "train", "16", "3")
    assert len(said) == ranks
    for s in said:
        assert s["worst"] <= CLOSE
        assert s["near"] <= 1e-5  # parameters after some steps
        assert s["sent"] == s["predicted"] > 0
        assert s["messages"] == s["groups"] == 1  # one AllReduce for all gradients and the loss
    assert len({s["digest"] for s in said}) == 1  # the same bits on all ranks
