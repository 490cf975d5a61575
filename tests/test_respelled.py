"""Programs in other words: compiled, each does what its own plain Python does. `python -m benchmarks.respelled` times
them."""

from __future__ import annotations

import random

import pytest

from benchmarks.respelled import drawn, is_right
from examples.everyday import Program, programs


@pytest.mark.filterwarnings("ignore:overflow encountered")  # hashes wrap round
@pytest.mark.parametrize("program", [*programs()], ids=lambda p: p.name)
def test_results(program: Program) -> None:
    seed = random.randrange(10**6)
    case = drawn(program, seed)
    assert case is None or is_right(case), f"{seed}\n{case.text}"
