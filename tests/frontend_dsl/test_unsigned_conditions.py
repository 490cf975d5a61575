"""Conditions that an element's type decides (`x >= 0` of an unsigned `x`) stay in the loops, where the proof looks.

Only the text of C leaves them out, because compilers warn of them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import agree
from back_ends import C_COMPILER

from polyc import dims, f32, inout, op, u8, u32

N = dims("N")


@op
def never(A: inout(f32[N]), X: u32[N]):
    for i in range(N):
        if X[i] < 0:
            A[i] -= 0.5


@op
def always(A: inout(f32[N]), X: u8[N]):
    for i in range(N):
        if X[i] >= 0:
            A[i] -= 0.5


@pytest.mark.parametrize("operator, dtype", [(never, np.uint32), (always, np.uint8)], ids=["never", "always"])
def test_right_everywhere_and_strict_c(operator: Any, dtype: Any, tmp_path: Path) -> None:
    agree(operator, np.ones(19, np.float32), np.arange(19).astype(dtype))
    if C_COMPILER is None:
        pytest.skip("no C compiler")
    files = operator.build(tmp_path, emit="c")
    strict = [C_COMPILER, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", str(files["c"])]
    done = subprocess.run(strict, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
