"""Gradients of communication operators: those of the sum of all ranks' losses, by differences."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.parallel import messages
from tests.parallel.mpi_runs import launch

CLOSE = 1e-6  # of the largest element; the loss of one element is quadratic, so central differences are exact


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.long), 3])
def test_gradients_of_messages_are_those_of_the_sum_of_all_losses(ranks: int) -> None:
    said = launch(ranks, "message_gradients")
    assert len(said) == ranks
    for s in said:
        assert set(s["found"]) == set(messages.CASES)
        assert all(error <= CLOSE for error in s["found"].values()), s
    assert sum(sum(s["found"].values()) for s in said) > 0


def test_a_broadcast_that_does_not_say_its_rank_has_no_gradient() -> None:
    ones = np.ones(messages.SHAPE, "f")
    model = messages.model("Broadcast", 2, 0, ones, ones)
    kept = [a for a in model.graph.node[1].attribute if a.name != "rank"]
    del model.graph.node[1].attribute[:]
    model.graph.node[1].attribute.extend(kept)
    with pytest.raises(polyc.ModelError, match="Broadcast .* has a gradient if its attribute `rank` says whose"):
        polyc.training(model, "loss", wrt=["w"], threads=1).gradients({"x": ones})
