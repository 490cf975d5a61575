"""Code for 64-bit Arm, executed. `python -m tests.aarch64` says what that needs; without it these tests are skipped."""

from __future__ import annotations

from pathlib import Path

import aarch64
import pytest
from exported import Machine, Trial, build, library, polybench, random_trials, run, ways_of

SAMPLE = ("conv", "depthwise", "gelu", "gemm", "softmax", "layer_norm", "quantize", "pair_matmul", "gather", "lstm",
          "max_pool_u8", "top_k")  # fmt: skip


@pytest.fixture
def machine() -> Machine:
    found = aarch64.machine()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def check(trials: list[Trial], machine: Machine, folder: Path) -> None:
    """Each operator, by LLVM and as C, gives what plain Python gives."""
    made, wrong = build(trials, machine)
    assert not wrong and len(made) == len(trials)
    ways = ways_of(machine, (("-O2",),))
    assert run(made, machine, ways, folder) == len(ways) * len(made)
    assert {b.trial.label: b.wrong for b in made if b.wrong} == {}


def test_a_sample_of_the_library(machine: Machine, tmp_path: Path) -> None:
    check([*library(SAMPLE)], machine, tmp_path)


def test_random_programs(machine: Machine, tmp_path: Path) -> None:
    check(list(random_trials(5, 500)), machine, tmp_path)


@pytest.mark.long
def test_the_whole_library(machine: Machine, tmp_path: Path) -> None:
    check([*library(), *polybench()], machine, tmp_path)


@pytest.mark.long
def test_200_random_programs(machine: Machine, tmp_path: Path) -> None:
    check(list(random_trials(200, 0)), machine, tmp_path)
