"""What the benchmarks take from the compiler is still there: forced tiles, schedules without tiles, random cases."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from benchmarks import ranking, tiles
from benchmarks.cases import gemms_of
from benchmarks.hunting.kinds import KINDS, case_of
from examples.matmul import matmul
from polyc.emit import targets
from polyc.graph_driver.compile_model import compile_model
from polyc.scheduler.cost import tile_plan


def test_a_grid_has_the_tile_that_is_asked_for() -> None:
    (case,) = gemms_of("tiles", [(12, 64, 20)])
    machine = targets.host()
    for rows, vectors in ((2, 1), (3, 2)):
        with patch.object(tile_plan, "choose", tiles._forced(rows, vectors)):
            assert tiles._chosen(case, machine) == f"{rows}x{vectors}"


def test_schedules_without_tiles_have_none() -> None:
    made = ranking.without_tiles(matmul.scop(M=12, N=64, K=20), targets.host())
    assert made.loops and not any(d.stage == "contraction" for d in made.decisions)


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_of_the_hunt_is_the_same_each_time(kind: str) -> None:
    first, second = case_of(kind, 5, 1), case_of(kind, 5, 1)
    assert first.name == second.name and {n: x.shape for n, x in first.inputs.items()} == {
        n: x.shape for n, x in second.inputs.items()
    }


def test_a_case_of_the_hunt_runs() -> None:
    case = case_of("layer", 5, 2)
    for made in compile_model(case.model, threads=1)(case.inputs).values():
        assert np.isfinite(made).all()
