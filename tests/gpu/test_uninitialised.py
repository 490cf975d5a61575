"""Threads beyond an edge compute on with registers that they never loaded: their values must have a meaning in C.

LLVM (PoCL 3.0) once concluded from an uninitialised register that the guard of the store after it always holds:
a convolution of 104 columns wrote beyond its rows and beyond the array (ddddocr common_det).
"""

from __future__ import annotations

import numpy as np
import pytest
from executors import CUDA, OPENCL
from texts import needs_opencl

from polyc import empty, f32, grid, op, sigmoid
from polyc.emit.gpu.devices import LaunchSpec, Pointer, open_device
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.program import sequence
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function
from polyc.emit.mathlib import expand_function
from polyc.poly.target import GpuTarget
from polyc.scheduler.strategies.auto import automatic

ROWS, COLUMNS, INNER = 16, 104, 24  # of blocks with 32 threads along a row the last has 8 at work


@op
def gate(A: f32[3, ROWS, INNER], B: f32[INNER, ROWS, COLUMNS + 2], w: f32[3]) -> f32[3, ROWS, COLUMNS]:
    T = empty((3, ROWS, COLUMNS), f32)
    Y = empty((3, ROWS, COLUMNS), f32)
    for b, i, j in grid(3, ROWS, COLUMNS):
        T[b, i, j] = w[b]
        for k in range(INNER):
            for d in range(3):
                T[b, i, j] = max(T[b, i, j], A[b, i, k] * B[k, i, j + d])
    for b, i, j in grid(3, ROWS, COLUMNS):
        Y[b, i, j] = T[b, i, j] * sigmoid(T[b, i, j])
    return Y


def lowered(target: GpuTarget) -> Function:
    s = automatic(gate.scop(), target)
    return expand_function(lower_gpu(s.scop, s.tree, "gate", target))


@pytest.mark.parametrize("target", [CUDA, OPENCL], ids=["cuda", "opencl"])
def test_registers_have_a_first_value(target: GpuTarget) -> None:
    declared = [line for line in to_gpu(lowered(target), target).text.splitlines() if line.endswith("] = {0};")]
    assert declared


@needs_opencl
def test_guards_of_stores_stay() -> None:
    fn, device = lowered(OPENCL), open_device("opencl")
    program = to_gpu(fn, OPENCL)
    handles, work = device.load(program, OPENCL), sequence(program, {})
    rng = np.random.default_rng()
    given = [rng.standard_normal(s).astype(np.float32) for s in ((3, ROWS, INNER), (INNER, ROWS, COLUMNS + 2), (3,))]
    expected = gate.python(*given)
    room = 4096  # beyond the result: must stay as it is
    result = np.full(expected.size + room, np.nan, np.float32)
    places = {}
    for b, array in zip(fn.buffers, [*given, result], strict=True):
        places[b.name] = Pointer(device.allocate(array.nbytes))
        device.upload(places[b.name], array)
    places |= {name: Pointer(device.allocate(n)) for name, n in work.scratch.items()}
    for c in work.calls:
        arguments = tuple(places[a] if isinstance(a, str) else a for a in c.arguments)
        device.launch(LaunchSpec(c.kernel, handles[c.kernel.name], c.grid, arguments))
    device.download(result, places[fn.buffers[-1].name])
    np.testing.assert_allclose(result[:-room].reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    assert np.isnan(result[-room:]).all()
