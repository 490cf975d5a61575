"""What is said of the nine light models, measured: minutes each, on a machine with nothing beside."""

import sys

import pytest

from benchmarks import overlapping


@pytest.mark.bench
def test_arenas_by_elements_are_a_sixth_below_the_optimum_for_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["overlapping"])
    assert overlapping.main() == 0
