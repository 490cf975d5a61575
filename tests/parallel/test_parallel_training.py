"""Data-parallel training over ranks of a real MPI: gradients of one process, one message for each group of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parallel.mpi_runs import launch, started

CLOSE = 1e-6  # of each gradient's largest element


DELAY = 1.0  # seconds of each message: longer than a step takes on the busiest machine


@pytest.mark.long
def test_kernels_run_while_a_message_is_under_way() -> None:
    """With two groups and a slow link: the second is asked for, behind kernels that follow the first, long before the
    first has arrived."""
    said = launch(2, "overlap", "10000", env={"POLYC_LINK": f"{DELAY},1e12"})
    for s in said:
        assert s["worst"] <= CLOSE
        assert len(s["moments"]) > 1 and s["before_wait"]
        assert max(s["products"]) > 0  # kernels between two messages
        for (_, begin, end), (asked, begins, _), products in zip(s["moments"], s["moments"][1:], s["products"]):
            assert end - begin >= DELAY
            assert begins >= end  # one at a time
            if products:
                assert asked < end


@pytest.mark.parametrize("name", ["classifier", pytest.param("convolutions", marks=pytest.mark.long)])
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_gradients_are_those_of_one_process(name: str, ranks: int) -> None:
    said = launch(ranks, "train", name, "16", "3", timeout=400)
    assert len(said) == ranks
    for s in said:
        assert s["worst"] <= CLOSE
        assert s["near"] <= 1e-5  # parameters after some steps
        assert s["sent"] == s["predicted"] > 0
        assert s["messages"] == s["groups"] == 1  # one AllReduce for all gradients and the loss
        assert s["kinds"] == ["AllReduce"]  # no activation goes anywhere
    assert sum(s["sent"] for s in said) == 2 * (ranks - 1) * (said[0]["parameters"] + 4)
    assert len({s["digest"] for s in said}) == 1  # the same bits on all ranks


@pytest.mark.long
def test_training_goes_on_from_a_file_also_at_another_number_of_ranks(tmp_path: Path) -> None:
    for ranks in (3, 2):
        for s in launch(ranks, "resume", str(tmp_path)):
            assert s["resumed"] == s["straight"]  # the same bits
            assert all(error <= CLOSE for error in s["others"].values()), s
    assert set(s["others"]) == {"2.npz", "3.npz"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2.npz", "3.npz"]  # nothing half written


def test_a_file_that_cannot_be_written_is_one_line_on_each_rank(tmp_path: Path) -> None:
    done = started(2, "resume", str(tmp_path / "missing"), timeout=60)
    said = [line for line in done.stderr.splitlines() if line.startswith("polyc: rank")]
    assert done.returncode
    assert any("rank 0: cannot write" in line and "No such file" in line for line in said), done.stderr
    assert len(said) == len({line[:14] for line in said})
