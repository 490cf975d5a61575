"""Large messages through memory that ranks have in common: the bits and the bytes of messages through MPI."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.parallel.mpi_runs import launch, started


def facts(said: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [(s["rank"], s["errors"], s["sent"], s["digest"]) for s in said]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_results_and_bytes_are_those_of_messages(ranks: int) -> None:
    shared, plain = launch(ranks, "large", "0"), launch(ranks, "large", "0", env={"POLYC_SHARED_MEMORY": "0"})
    assert facts(shared) == facts(plain)
    assert all(s["errors"] == [] and s["notes"] == [] for s in shared)
    for s in plain:
        assert s["notes"] == [f"no shared memory for ranks {list(range(ranks))}: POLYC_SHARED_MEMORY=0"]


def test_a_rank_that_dies_is_a_line_of_the_others(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = started(3, "large_killed", timeout=60, env={"POLYC_RANK_LOGS": str(tmp_path)})
    assert done.returncode and time.monotonic() - begin < 30.0
    for rank in (0, 2):
        said = (tmp_path / f"rank-{rank}.log").read_text(encoding="utf-8")
        assert "rank 1 is gone" in said and said.count("\n") == 1
