"""Code for 64-bit Arm, executed. `python -m tests.aarch64` says what that needs; without it these tests are skipped."""

from __future__ import annotations

from pathlib import Path

import aarch64
import pytest
from exported import Machine, assert_right, library, polybench, random_trials

SAMPLE = ("conv", "depthwise", "gelu", "gemm", "softmax", "layer_norm", "quantize", "pair_matmul", "gather", "lstm",
          "max_pool_u8", "top_k")  # fmt: skip


@pytest.fixture
def machine() -> Machine:
    found = aarch64.machine()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def test_a_sample_of_the_library(machine: Machine, tmp_path: Path) -> None:
    assert_right([*library(SAMPLE)], machine, tmp_path, aarch64.FLAGS)


def test_random_programs(machine: Machine, tmp_path: Path) -> None:
    assert_right(list(random_trials(5, 500)), machine, tmp_path, aarch64.FLAGS)


@pytest.mark.long
def test_the_whole_library(machine: Machine, tmp_path: Path) -> None:
    assert_right([*library(), *polybench()], machine, tmp_path, aarch64.FLAGS)


@pytest.mark.long
def test_200_random_programs(machine: Machine, tmp_path: Path) -> None:
    assert_right(list(random_trials(200, 0)), machine, tmp_path, aarch64.FLAGS)
