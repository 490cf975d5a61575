"""Scans along rows: panels in shared memory, copied by all threads, a thread a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simt
import traffic
from executors import OPENCL
from texts import CUDA, needs_shim, on_shim

from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.mathlib import expand_function
from polyc.frontend_dsl.library.reduction import make_cumulative
from polyc.poly.dtypes import f32
from polyc.scheduler.strategies.auto import automatic

FORMS = {"sum": (False, False), "reversed": (False, True), "exclusive": (True, False), "both": (True, True)}


def made(form: str, rows: int, n: int) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    """The operator, fresh arguments of whole numbers, and what plain Python makes of them."""
    operator = make_cumulative(f32, rows, n, 1, *FORMS[form])
    args = [np.random.default_rng(n).integers(-4, 5, (rows, n, 1)).astype("f4")]
    return operator, args, [np.asarray(operator.python(*args))]


@pytest.mark.parametrize("form", [f if f == "sum" else pytest.param(f, marks=pytest.mark.long) for f in FORMS])
def test_in_the_interpreter(form: str) -> None:
    operator, args, expected = made(form, 35, 70)
    schedule = automatic(operator.scop(), simt.TARGET)
    assert "scans of 32 rows in panels of 32 elements" in "\n".join(schedule.notes)
    assert simt.agree(schedule, args, expected) == ""


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_cuda_text(form: str) -> None:
    operator, args, expected = made(form, 67, 131)
    schedule = automatic(operator.scop(), CUDA)
    program = to_gpu(expand_function(lower_gpu(schedule.scop, schedule.tree, "scan", CUDA)), CUDA)
    for how in ({"order": "shuffled", "check": "bounds"}, {"order": "reverse", "check": "bounds"}, {"check": "races"}):
        assert simt.far(on_shim(schedule.scop, program, args, **how), expected, 0.0) == "", how


@pytest.mark.skipif(bool(traffic.missing()), reason=traffic.missing())
@pytest.mark.long
def test_rows_are_read_and_written_once() -> None:
    """The last element of each panel is read again."""
    operator, args, expected = made("sum", 37, 150)
    schedule = automatic(operator.scop(), OPENCL)
    fn = expand_function(lower_gpu(schedule.scop, schedule.tree, "scan", OPENCL))
    got, moved = traffic.counted(schedule.scop, fn, args)
    assert simt.far(got, expected, 0.0) == ""
    assert moved.written["global"] == 4 * 37 * 150
    assert moved.read["global"] <= 4 * 37 * (150 + -(-150 // 32))
