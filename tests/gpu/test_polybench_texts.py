"""PolyBench on GPUs: CUDA text on the shim (orders, races, bounds), OpenCL text on PoCL, machine code."""

from __future__ import annotations

import numpy as np
import pytest
import texts
from texts import needs_nvidia, needs_opencl, needs_shim

from examples import polybench
from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import nvidia
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function
from polyc.emit.mathlib import expand_function
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget
from polyc.scheduler.strategies.auto import automatic

QUICK = ("gemm", "atax")
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in polybench.MODULES]


def mapped(name: str, target: GpuTarget) -> tuple[Scop, Function, list[object], tuple[np.ndarray, ...]]:
    """The Scop and its launches, arguments, and what plain Python makes of them."""
    k = polybench.load(name)
    args, constants = k.arguments("MINI")
    expected = polybench.run(k.exact.python, k.exact, args, **constants)
    scop = k.exact.scop(**constants)
    s = automatic(scop, target)
    return s.scop, expand_function(lower_gpu(s.scop, s.tree, scop.name, target)), list(args), expected


def check(got: list[np.ndarray], expected: tuple[np.ndarray, ...]) -> None:
    """Within rounding, relative to the array's scale. Elements that nobody wrote stay undefined."""
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        written = ~np.isnan(e)
        scale = max(float(np.abs(e[written]).max(initial=0)), 1e-300)
        assert (np.abs(g - e)[written] <= 1e-11 * scale).all()


@needs_shim
@pytest.mark.parametrize("name", NAMES)
def test_cuda_text(name: str) -> None:
    scop, fn, args, expected = mapped(name, texts.CUDA)
    check(texts.on_shim(scop, fn, args), expected)
    check(texts.on_shim(scop, fn, args, order="shuffled"), expected)


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_cuda_text_stays_within_its_arrays(name: str) -> None:
    scop, fn, args, expected = mapped(name, texts.CUDA)
    check(texts.on_shim(scop, fn, args, order="reverse", check="bounds"), expected)


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("name", ["gemm", "syrk", "trmm", "atax", "mvt", "jacobi-1d"])
def test_cuda_text_has_no_races(name: str) -> None:
    scop, fn, args, expected = mapped(name, texts.CUDA)
    check(texts.on_shim(scop, fn, args, check="races"), expected)


@needs_opencl
@pytest.mark.parametrize("name", NAMES)
def test_opencl_text(name: str) -> None:
    scop, fn, args, expected = mapped(name, texts.OPENCL)
    check(texts.on_opencl(scop, fn, args), expected)


@needs_nvidia
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_machine_code_without_spills(name: str) -> None:
    _, fn, _, _ = mapped(name, texts.CUDA)
    for arch in ("sm_80", "sm_90"):
        target = targets.get(arch)
        found = nvidia.compile_cubin(to_gpu(fn, target), target).resources
        assert found and all(r.spill_loads == r.spill_stores == 0 for r in found)
