"""Operators at sizes that divide nothing: CUDA text on the shim, OpenCL text, machine code."""

from __future__ import annotations

from typing import Any

import differential
import pytest
import simt
import texts
from programs import ALL, arguments
from texts import needs_nvidia, needs_opencl, needs_shim

from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import nvidia, shim
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function
from polyc.emit.mathlib import expand_function
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget
from polyc.scheduler.strategies.auto import automatic

SIZES = [(37, 41, 19), (5, 67, 3), (1, 300, 9)]
FIRST = [pytest.param(name, 0, marks=() if name in ("matmul", "softmax") else pytest.mark.long) for name in ALL]
REST = [pytest.param(name, k, marks=pytest.mark.long) for name in ALL for k in range(1, len(SIZES))]


def mapped(name: str, target: GpuTarget) -> tuple[Scop, Function]:
    """The launches of the automatic schedule."""
    s = automatic(ALL[name][0].scop(), target)
    return s.scop, expand_function(lower_gpu(s.scop, s.tree, name, target))


def expect(name: str, size: int, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Arguments, and what plain Python makes of them."""
    args = arguments(name, SIZES[size], seed)
    return args, differential.oracle(ALL[name][0], args)


@needs_shim
@pytest.mark.parametrize(("name", "size"), [*FIRST, *REST])
def test_cuda_text_in_all_orders(name: str, size: int) -> None:
    scop, fn = mapped(name, texts.CUDA)
    args, expected = expect(name, size)
    for order in shim.ORDERS:
        assert simt.far(texts.on_shim(scop, fn, args, order=order, seed=size), expected, 1e-5) == ""


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("check", ["races", "bounds"])
@pytest.mark.parametrize("name", ALL)
def test_cuda_text_is_clean(name: str, check: Any) -> None:
    scop, fn = mapped(name, texts.CUDA)
    args, expected = expect(name, 1)
    assert simt.far(texts.on_shim(scop, fn, args, check=check), expected, 1e-5) == ""


@needs_opencl
@pytest.mark.parametrize(("name", "size"), [*FIRST, *REST])
def test_opencl_text(name: str, size: int) -> None:
    scop, fn = mapped(name, texts.OPENCL)
    args, expected = expect(name, size)
    assert simt.far(texts.on_opencl(scop, fn, args), expected, 1e-5) == ""


@needs_nvidia
@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_machine_code_without_spills(name: str, arch: str) -> None:
    target = targets.get(arch)
    _, fn = mapped(name, target)
    found = nvidia.compile_cubin(to_gpu(fn, target), target).resources
    assert found and all(r.spill_loads == r.spill_stores == 0 for r in found)
