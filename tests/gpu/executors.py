"""Running the texts that a GPU would get: CUDA on the CPU shim, OpenCL on whatever device is there.

Importing this opens no device: a process may fork first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import back_ends
import numpy as np

from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import DeviceError, Pointer, open_device, shim
from polyc.emit.gpu.devices import LaunchSpec as Spec
from polyc.emit.gpu.program import Program, sequence
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function

CUDA, OPENCL = targets.get("sm_80"), targets.get("opencl")


@cache
def opencl_here() -> str:
    """ "" when OpenCL text can run, else why not."""
    try:
        open_device("opencl")
    except DeviceError as error:
        return str(error)
    return ""


def on_shim(scop: Any, fn: Function | Program, args: Sequence[Any], **how: Any) -> list[np.ndarray]:
    """The updated arrays after running the CUDA text."""
    arrays, sizes = back_ends.arrays_of(scop, args)
    program = fn if isinstance(fn, Program) else to_gpu(fn, CUDA)
    shim.run_on_shim(program, {b.name: arrays[b.name] for b in program.function.buffers}, sizes, **how)
    return [arrays[n] for n in back_ends.updated(scop)]


def on_opencl(scop: Any, fn: Function, args: Sequence[Any]) -> list[np.ndarray]:
    """The updated arrays after running the OpenCL text."""
    arrays, sizes = back_ends.arrays_of(scop, args)
    _run_opencl(fn, arrays, sizes, back_ends.updated(scop))
    return [arrays[n] for n in back_ends.updated(scop)]


def _run_opencl(fn: Function, arrays: dict[str, np.ndarray], sizes: dict[str, int], written: Sequence[str]) -> None:
    device, program = open_device("opencl"), to_gpu(fn, OPENCL)
    handles, work = device.load(program, OPENCL), sequence(program, sizes)
    places = {}
    for b in fn.buffers:
        places[b.name] = Pointer(device.allocate(arrays[b.name].nbytes))
        device.upload(places[b.name], np.ascontiguousarray(arrays[b.name]))
    for name, nbytes in work.scratch.items():
        places[name] = Pointer(device.allocate(nbytes))
        device.upload(places[name], np.full(nbytes, 0xFF, np.uint8))
    for c in work.calls:
        given = tuple(places[a] if isinstance(a, str) else a for a in c.arguments)
        device.launch(Spec(c.kernel, handles[c.kernel.name], c.grid, given))
    for name in written:
        host = np.empty_like(arrays[name])
        device.download(host, places[name])
        arrays[name][...] = host


def on_device(where: str, fn: Function, arrays: dict[str, np.ndarray], sizes: dict[str, int]) -> None:
    """Run on all buffers by name, updated in place; `where` is `shim` or `opencl`."""
    if where == "shim":
        shim.run_on_shim(fn, arrays, sizes)
    else:
        _run_opencl(fn, arrays, sizes, [b.name for b in fn.buffers if b.writable])
