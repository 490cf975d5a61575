"""Programs as people write them: plain Python's results. `python -m benchmarks.everyday` times them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.everyday import is_right
from examples.everyday import Program, programs


@pytest.mark.filterwarnings("ignore:overflow encountered")  # hashes wrap round
@pytest.mark.parametrize("program", [*programs()], ids=lambda p: p.name)
def test_results(program: Program) -> None:
    assert is_right(program, np.random.default_rng())
