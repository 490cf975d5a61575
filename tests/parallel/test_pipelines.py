"""Pipelines: results of one process, bytes as predicted, and the order of their work."""

from __future__ import annotations

import pytest

from polyc import ArgumentError, Network
from polyc.graph_driver.parallel.pipeline import cut, one_forward_one_backward, pipelined
from tests.parallel.mpi_runs import launch
from tests.parallel.rank_models import Builder, images
from tests.parts import in_part


@pytest.mark.parametrize(
    ("ranks", "micro_batches"), in_part([(4, "4"), (2, "2")], lambda ranks, micro_batches: ranks == 2)
)
def test_stages_give_the_results_of_one_process(ranks: int, micro_batches: str) -> None:
    said = launch(ranks, "pipeline", "images", micro_batches)
    assert len(said) == ranks
    for s in said:
        assert s["error"] <= 2e-6
        assert s["sent"] == s["predicted"]
        assert s["crossings"] >= ranks - 1
    assert sum(s["sent"] for s in said) > 0


def test_each_micro_batch_has_its_own_part_of_a_weight() -> None:
    """Weights whose first axis is the batch: every micro-batch once had the part of the first."""
    for s in launch(2, "pipeline", "rows", "4"):
        assert s["error"] == 0.0
        assert s["sent"] == s["predicted"]


@pytest.mark.parametrize(
    ("ranks", "name", "micro_batches"),
    in_part(
        [(2, "shared", 2), (2, "shared", 4), (2, "convolutions", 4), (4, "classifier", 4)],
        lambda _, name, micro: micro == 2,
    ),
)
def test_training_in_stages_has_the_gradients_of_one_process(ranks: int, name: str, micro_batches: int) -> None:
    said = launch(ranks, "pipeline_train", name, "8", str(micro_batches), "2", timeout=400)
    assert len(said) == ranks
    for s in said:
        assert s["worst"] <= 1e-6 and s["loss"] <= 1e-6
        assert s["near"] <= 1e-5
        assert s["sent"] == s["predicted"] > 0
        assert s["kept"] == min(ranks - s["rank"], micro_batches)  # 1F1B: no more than that are under way
    assert len({s["digest"] for s in said}) == 1


@pytest.mark.parametrize("stages", [1, 2, 4, 7])
@pytest.mark.parametrize("micro_batches", [1, 4, 9])
def test_one_forward_one_backward(stages: int, micro_batches: int) -> None:
    for stage in range(stages):
        order = one_forward_one_backward(stage, stages, micro_batches)
        for kind in ("forward", "backward"):
            assert [k for what, k in order if what == kind] == list(range(micro_batches))
        kept, most = 0, 0
        for what, _ in order:
            kept += 1 if what == "forward" else -1
            assert kept >= 0
            most = max(most, kept)
        assert most == min(stages - stage, micro_batches)


def test_cuts_are_the_best_of_all() -> None:
    times, leaving = [3.0, 1.0, 1.0, 2.0, 2.0], [0, 8, 1, 4, 2, 0]
    network = Network(bandwidth=4.0, latency=0.0)

    def slowest(first: list[int]) -> float:
        ends = [*first[1:], len(times)]
        return max(sum(times[a:b]) + (leaving[b] / 4.0 if b < len(times) else 0.0) for a, b in zip(first, ends))

    every = [[0, a, b] for a in range(1, 4) for b in range(a + 1, 5)]
    assert slowest(cut(times, leaving, 3, network)) == min(map(slowest, every))


def test_what_needs_more_than_a_micro_batch_is_refused() -> None:
    b = Builder("sums")
    y = b.add("Sub", b.input("x", 4, 3), b.add("ReduceSum", "x", b.ints(0), keepdims=1))
    with pytest.raises(ArgumentError, match="Sub .* needs more than one micro-batch of"):
        pipelined(b.model(y), 2, 2)
    b = Builder("same for all")
    y = b.add("Add", b.input("x", 4, 4), b.add("Trilu", b.input("z", 4, 4)))
    with pytest.raises(ArgumentError, match="is the same for all micro-batches, but Add .* reads it in parts"):
        pipelined(b.model(y), 2, 2)
    model, _ = images()
    with pytest.raises(ArgumentError, match="equal micro-batches"):
        pipelined(model, 2, 3)
