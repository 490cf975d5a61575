"""Convolutions: panels straight from the image, tiles of pixels in two dimensions, no padded copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simt
import traffic
from executors import OPENCL
from texts import CUDA, needs_nvidia, needs_opencl, needs_shim, on_opencl, on_shim

from polyc.emit.gpu import targets
from polyc.emit.gpu.kernel import compile_gpu
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Alloc, Function, Store, walk
from polyc.emit.mathlib import expand_function
from polyc.frontend_dsl.library.convolution import make_conv2d
from polyc.poly.dtypes import f32
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.strategies.gpu import contraction as gpu_contraction

CASES = {  # batch, channels, size, window, strides, dilations, pads before and after, bias
    "same": (1, (5, 37), (13, 19), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), True),
    "strided": (2, (8, 16), (14, 14), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), True),
    "uneven": (3, (9, 21), (17, 23), (5, 3), (2, 1), (1, 2), (2, 1), (1, 0), False),
    "inside": (1, (9, 17), (11, 29), (3, 2), (1, 1), (1, 1), (0, 0), (0, 0), False),
}


def made(name: str, target: Any) -> tuple[Schedule, Function, list[np.ndarray], list[np.ndarray]]:
    """Schedule, launches, fresh arguments and what plain Python makes of them."""
    operator = make_conv2d(f32, *CASES[name])
    scop = operator.scop()
    rng = np.random.default_rng(len(name))
    args = [rng.standard_normal([int(e.value) for e in scop.arrays[a].shape]).astype("f4") for a in scop.args]
    s = automatic(scop, target)
    fn = expand_function(lower_gpu(s.scop, s.tree, "conv", target))
    return s, fn, args, [np.asarray(operator.python(*args))]


def test_one_kernel_and_no_padded_copy() -> None:
    operator = make_conv2d(f32, 1, (16, 64), (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), True)
    schedule = automatic(operator.scop(), simt.TARGET)
    fn = simt.finished(schedule.scop, schedule.tree)
    (launch,) = simt.launches(fn)
    assert not any(isinstance(s, Alloc) and s.buffer.space == "heap" for s in walk(fn.body))
    fetched = [s for s in walk(launch.body) if isinstance(s, Store) and "P_panel" in s.array]
    assert any(s.asynchronous for s in fetched) and not all(s.asynchronous for s in fetched), "zeros are put at once"
    (tile,) = [s.buffer for s in walk(launch.body) if isinstance(s, Alloc) and s.buffer.promoted == "Y_tile"]
    assert tile.space == "register"


def test_large_images_have_large_thread_tiles() -> None:
    operator = make_conv2d(f32, 32, (64, 64), (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), True)
    schedule = automatic(operator.scop(), simt.TARGET)
    assert "convolution in blocks of 64 (o) x 14 x 8" in "\n".join(schedule.notes)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_in_the_interpreter(name: str) -> None:
    schedule, fn, args, expected = made(name, simt.TARGET)
    assert simt.far(simt.results(schedule.scop, fn, args, races=True), expected, 1e-5) == ""


@needs_shim
@pytest.mark.parametrize("name", [n if n == "strided" else pytest.param(n, marks=pytest.mark.long) for n in CASES])
def test_cuda_text(name: str) -> None:
    schedule, fn, args, expected = made(name, CUDA)
    program = to_gpu(fn, CUDA)
    quick: list[dict[str, Any]] = [{"order": "shuffled", "check": "bounds", "seed": 1}]
    rest = [{"order": o, "check": "bounds"} for o in ("forward", "reverse")] if name != "strided" else []
    for how in (*quick, *rest, {"check": "races"}):
        assert simt.far(on_shim(schedule.scop, program, args, **how), expected, 1e-5) == "", how


@needs_opencl
@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_opencl_text(name: str) -> None:
    schedule, fn, args, expected = made(name, OPENCL)
    assert simt.far(on_opencl(schedule.scop, fn, args), expected, 1e-5) == ""


@pytest.mark.long
@pytest.mark.skipif(bool(traffic.missing()), reason=traffic.missing())
def test_it_moves_less_than_tiles_of_one_row_of_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: bytes of device memory, instructions of all threads."""
    operator = make_conv2d(f32, 1, (6, 32), (14, 14), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), True)
    scop = operator.scop()
    rng = np.random.default_rng(0)
    args = [rng.standard_normal([int(e.value) for e in scop.arrays[a].shape]).astype("f4") for a in scop.args]
    expected = [np.asarray(operator.python(*args))]
    counts = []
    for present in (gpu_contraction.convolution, lambda *_: None):
        monkeypatch.setattr(gpu_contraction, "convolution", present)
        s = automatic(scop, OPENCL)
        fn = expand_function(lower_gpu(s.scop, s.tree, "conv", OPENCL))
        got, text = traffic.run(s.scop, fn, args, "--inst-counts")
        assert simt.far(got, expected, 1e-5) == ""
        counts.append((traffic.parse(text).moved, traffic.instructions(text)))
    assert counts[0][0] < counts[1][0] and counts[0][1] < counts[1][1]


@needs_nvidia
@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "case",
    [
        *CASES.values(),
        (32, (64, 64), (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), True),
        (1, (3, 64), (224, 224), (7, 7), (2, 2), (1, 1), (3, 3), (3, 3), True),
        (1, (512, 512), (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), True),
    ],
)
def test_no_spills(case: Any, arch: str) -> None:
    target = targets.get(arch)
    s = automatic(make_conv2d(f32, *case).scop(), target)
    used = compile_gpu(s.scop, s.tree, target).cubin().resources
    assert all(r.spill_loads == r.spill_stores == 0 for r in used)
