"""Every library operator under the automatic GPU schedule, in the interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import simt

from scheduler.strategies.gpu import automatic_gpu

sys.path.append(str(Path(__file__).parents[1] / "library"))
from test_library_python import CASES, drawn


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_library(name: str) -> None:
    operator = CASES[name]()
    scop = operator.scop()
    args = [drawn(scop.arrays[a].dtype, tuple(int(e.value) for e in scop.arrays[a].shape)) for a in scop.args]
    expected = operator.python(*args)
    expected = [np.asarray(x) for x in (expected if isinstance(expected, tuple) else (expected,))]
    assert simt.agree(automatic_gpu(scop, simt.TARGET), args, expected, 1e-5) == ""
