"""Operators as files, compiled by the compilers that are here and run. `python -m tests.exported` runs all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import exported
import numpy as np
import pytest
from exported import LLVM, Machine, assert_right, build, compared, library, polybench, random_trials, run, ways_of

SAMPLE = ("conv_pairs", "arg_max", "scatter_nd", "rnn_lengths", "dft")


@pytest.fixture
def machine() -> Machine:
    found = exported.here()
    if found is None:
        pytest.skip("no gcc or clang on PATH")
    return found


def test_a_sample_of_the_library_and_random_programs(machine: Machine, tmp_path: Path) -> None:
    assert_right([*library(SAMPLE), *random_trials(2, 700)], machine, tmp_path, (("-O1",), ("-O1", "-DPOLYC_PLAIN_C")))


@pytest.mark.long
def test_everything(machine: Machine, tmp_path: Path) -> None:
    assert_right([*library(), *polybench(), *random_trials(100, 0)], machine, tmp_path, exported.FLAGS)


def test_a_wrong_result_and_a_warning_are_found(machine: Machine, tmp_path: Path) -> None:
    (trial,) = library(["gelu"])
    wrong = replace(trial, wanted=lambda: [np.asarray(x) * np.float32(1.01) for x in trial.wanted()])
    (made,), _ = build([wrong], machine)
    run([made], machine, [LLVM], tmp_path)
    assert "is off by" in made.wrong["LLVM"]
    warned = replace(ways_of(machine)[1], flags=("-Wunused-macros",))
    (tmp_path / "again").mkdir()
    (made,), _ = build([trial], machine)
    run([made], machine, [warned], tmp_path / "again")
    assert "unused" in next(iter(made.wrong.values()))


def test_comparing() -> None:
    a = np.array([1, 2], np.float32)
    assert compared([a], [a], False) == compared([a], [a], True) == ""
    assert "is off by" in compared([a], [a + 1], False)
    assert "differ" in compared([a.astype(np.int32)], [a.astype(np.int32) + 1], False)
    assert "against" in compared([a], [a.astype(np.float64)], False)
