"""Operators compiled for a GPU: called like other kernels, with NumPy arrays or arrays of the device."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from polyc.emit import cache
from polyc.emit.gpu import targets
from polyc.emit.gpu.arrays import DeviceArray, empty, on_a_device, to_device
from polyc.emit.gpu.devices import Device, LaunchSpec, Pointer, check_runs_on, launch_spec, nvidia, open_device
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.program import Program, sequence
from polyc.emit.gpu.program import Sequence as Launches
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.kernel import Kernel, Report
from polyc.emit.loop_ir.loops import Function
from polyc.emit.lowering.checks import wanted
from polyc.emit.mathlib import expand_function
from polyc.emit.recipe import Recipe
from polyc.poly.errors import ArgumentError, BuildError
from polyc.poly.scop import Array, Scop
from polyc.poly.target import GpuTarget
from polyc.poly.tree import Node
from polyc.poly.violations import violation

SOURCES = ("loops", "cuda", "opencl", "nvptx", "ptx", "ptxas")


def compile_gpu(
    scop: Scop, tree: Node, target: GpuTarget, name: str | None = None, notes: Sequence[str] = (),
    checks: bool | None = None,
) -> GpuKernel:  # fmt: skip
    """Lower and print. Machine code is made when it is first asked for or run: that needs a compiler
    or a device, this does not. `checks`: whether accesses that may leave their arrays are checked (None: unless
    `POLYC_CHECK=0`).

    Raises:
        BuildError: the tree cannot be mapped or exceeds the target, or there is no code for it.
    """
    symbol = re.sub(r"\W", "_", name or scop.name)
    report = Report(notes=[*notes])
    start = time.perf_counter()
    function = expand_function(lower_gpu(scop, tree, symbol, target, wanted(checks)))
    report.seconds["lower"] = time.perf_counter() - start
    report.notes += function.notes
    start = time.perf_counter()
    program = to_gpu(function, target)
    report.seconds["print"] = time.perf_counter() - start
    report.source_bytes = len(program.text)
    report.notes += [n for n in cache.notes() if n not in report.notes]
    kernel = GpuKernel(scop, function, target, program, report)
    kernel.recipe = Recipe(compile_gpu, scop, tree, target, (name, tuple(notes), wanted(checks)))
    return kernel


class GpuKernel(Kernel):
    """A compiled operator of one or more GPU kernels.

    With NumPy arrays a call copies there and back. When an argument is an array of the device
    (`DeviceArray`, or anything with DLPack or `__cuda_array_interface__`) the results stay on the device.
    """

    def __init__(self, scop: Scop, function: Function, target: GpuTarget, program: Program, report: Report) -> None:
        super().__init__(scop, function, target, target.kind, 1, None, report)  # type: ignore[arg-type]
        self.gpu = target
        self.program = program
        self._loaded: tuple[Device, dict[str, Any]] | None = None
        self._sequences: dict[tuple[int, ...], Launches] = {}

    # ---- calling ----

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Run on `args`.

        Raises:
            ArgumentError: number, names, dtypes, shapes or sizes of the arguments do not fit.
            BoundsError: an access that was executed lies outside its array.
            DeviceError: there is no device (one line that says what was looked for).
        """
        if not any(map(on_a_device, (*args, *named.values()))):
            return super().__call__(*args, out=out, **named)
        if out is not None:
            raise ArgumentError(f"{self.scop.name}: out= takes NumPy arrays only, results on a device are new arrays")
        if named or len(args) != len(self._arguments):
            args = self._by_name(args, named)
        device = self.device()
        given = []
        for x, array in zip(args, self._arguments):
            if not on_a_device(x):
                if array.kind == "inout":
                    raise ArgumentError(f"{self.scop.name}: '{array.name}' is updated in place: give it on the device")
                x = np.asarray(x, array.dtype.np) if np.ndim(x) == 0 else x
            x = to_device(device, x)
            if x.dtype != array.dtype:
                raise ArgumentError(
                    f"{self.scop.name}: argument '{array.name}' has dtype {x.dtype}, expected {array.dtype}"
                )
            given.append(x)
        bound = self.bind(tuple(x.shape for x in given))
        results = [empty(device, shape, a.dtype) for a, shape in zip(self._results, bound.results)]
        self.launch([*given, *results], bound.values)
        return None if not results else results[0] if len(results) == 1 else tuple(results)

    def run(self, arrays: list[np.ndarray], bound: Any) -> None:
        """Copy to the device, launch, copy back what is written: nothing, after a `BoundsError`."""
        device = self.device()
        there = [to_device(device, a) for a in arrays]
        self.launch(there, bound.values)
        first = len(self._arguments)
        for k, (x, array) in enumerate(zip(there, arrays)):
            if k >= first or k in self._in_place:
                device.download(array, x.pointer)

    def launch(self, arrays: Sequence[DeviceArray], sizes: Mapping[str, int], stream: Any = None) -> None:
        """Start all kernels on arrays of the device: the arguments, then the results. Returns when they are done if
        there are checks, else at once.

        Raises:
            BoundsError: an access that was executed lies outside its array; what is written there is half written.
        """
        device, checks = self.device(), self.function.checks
        record = self.record()
        for spec in self.prepared(arrays, sizes, record):
            device.launch(spec, stream)
        if record is not None:
            found = np.empty(len(checks), np.uint64)
            device.download(found, record, stream)
            if found.any():
                raise violation(checks, found.tolist(), sizes)

    def record(self) -> Pointer | None:
        """New memory of the device for the violated accesses, none so far; None where all are proven."""
        zeros = np.zeros(len(self.function.checks), np.uint64)
        if not zeros.size:
            return None
        pointer = Pointer(self.device().allocate(zeros.nbytes))
        self.device().upload(pointer, zeros)
        return pointer

    def prepared(
        self, arrays: Sequence[DeviceArray], sizes: Mapping[str, int], record: Pointer | None = None
    ) -> list[LaunchSpec]:
        """The launches on these arrays, to be started any number of times (`device.launch`). An access outside its
        array does nothing, and is to be found in the `record` given."""
        device = self.device()
        places = dict(zip([*self.scop.args, *self.scop.results], (a.pointer for a in arrays)))
        record = record or self.record()
        if record is not None:
            places[self.function.buffers[-1].name] = record
        work = self.sequence(sizes)
        places |= {name: Pointer(device.allocate(nbytes)) for name, nbytes in work.scratch.items()}
        return self.specs(work, places)

    def sequence(self, sizes: Mapping[str, int]) -> Launches:
        """The launches for these sizes (remembered)."""
        key = tuple(sizes[p] for p in self.function.params)
        if key not in self._sequences:
            self._sequences[key] = sequence(self.program, sizes)
        return self._sequences[key]

    def specs(self, work: Launches, places: Mapping[str, Pointer]) -> list[LaunchSpec]:
        """The launches with handles and addresses filled in."""
        self.device()
        assert self._loaded is not None
        handles = self._loaded[1]
        return [
            launch_spec(
                c.kernel, handles[c.kernel.name], c.grid, [places[a] if isinstance(a, str) else a for a in c.arguments]
            )
            for c in work.calls
        ]

    def device(self) -> Device:
        """The device, with the kernels loaded.

        Raises:
            DeviceError: there is none, or it is of another architecture than the code.
        """
        if self._loaded is None:
            device = open_device(self.program.language)
            check_runs_on(device, self.gpu)
            self._loaded = device, device.load(self.program, self.gpu)
        return self._loaded[0]

    @property
    def results(self) -> list[Array]:
        """The arrays that a call makes."""
        return self._results

    @property
    def notes(self) -> tuple[str, ...]:
        """What was declined on the way, and why."""
        return tuple(self._report.notes)

    @property
    def report_seconds(self) -> dict[str, float]:
        """Seconds by stage."""
        return dict(self._report.seconds)

    # ---- looking inside ----

    def source(self, kind: str = "loops") -> str:
        """The kernels as text: `loops`, `cuda`, `opencl`, `nvptx` (LLVM IR), `ptx`, or `ptxas` (what they take, one a
        line).

        Raises:
            BuildError: there is no such text for this kernel.
        """
        if kind == "loops":
            return super().source(kind)
        if kind == self.program.language:
            return self.program.text
        if kind in ("cuda", "opencl"):
            return to_gpu(self.function, targets.get(targets.DEFAULT_CUDA if kind == "cuda" else kind)).text
        if kind in ("nvptx", "ptx"):
            from polyc.emit.gpu.nvptx.ptx import to_ptx
            from polyc.emit.gpu.nvptx.source import to_nvptx

            text = to_nvptx(self.function, self.gpu).text
            return text if kind == "nvptx" else to_ptx(text, self.gpu)
        if kind == "ptxas":
            from polyc.emit.gpu.resources import lines

            return "\n".join(lines(list(self.cubin().resources)))
        raise BuildError(f"a GPU kernel has no source of kind '{kind}'; choose from {', '.join(SOURCES)}")

    def cubin(self) -> nvidia.Cubin:
        """Machine code and what it takes (registers, spills, shared memory, occupancy).

        Raises:
            BuildError: the target is not NVIDIA's, or no CUDA compiler is here.
        """
        if self.program.language != "cuda":
            raise BuildError(f"target {self.gpu.name} has no machine code before it meets a device")
        return nvidia.compile_cubin(self.program, self.gpu)

    def report(self) -> dict[str, Any]:
        """How it was compiled, and each kernel's mapping and resources where a compiler is here."""
        data = super().report()
        data["kernels"] = [
            {"name": k.name, "threads": list(k.threads), "shared": k.shared, "barriers": k.barriers}
            for k in self.program.kernels.values()
        ]
        if self.program.language == "cuda" and nvidia.compiler() is not None:
            data["resources"] = [asdict(r) for r in self.cubin().resources]
        return data
