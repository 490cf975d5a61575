"""Every library operator under the automatic GPU schedule, in the interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import simt
from texts import needs_nvidia

from polyc.emit.gpu import targets
from polyc.emit.gpu.kernel import compile_gpu
from polyc.scheduler.strategies.auto import automatic

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
    assert simt.agree(automatic(scop, simt.TARGET), args, expected, 1e-5) == ""


@needs_nvidia
@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", CASES)
def test_no_spills(name: str, arch: str) -> None:
    target = targets.get(arch)
    schedule = automatic(CASES[name]().scop(), target)
    used = compile_gpu(schedule.scop, schedule.tree, target).cubin().resources
    assert used and all(r.spill_loads == r.spill_stores == 0 for r in used)
