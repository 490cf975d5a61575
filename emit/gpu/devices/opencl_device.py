"""An OpenCL device through pyopencl: GPUs of any vendor, or a CPU (PoCL)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.emit.gpu.devices import Device, DeviceError, LaunchSpec, Pointer
from polyc.emit.gpu.program import KernelText
from polyc.poly import dlpack
from polyc.poly.target import GpuTarget
from polyc.poly.words import first_line

OPTIONS = "-cl-std=CL1.2"


class OpenclDevice(Device):
    """The first GPU of all platforms, else the first device; `$POLYC_OPENCL` picks by a part of the
    platform's or device's name."""

    interface = "pyopencl"
    language = "opencl"
    dlpack_type = dlpack.OPENCL

    def __init__(self) -> None:
        import pyopencl as cl

        self._cl = cl
        try:
            devices = [d for p in cl.get_platforms() for d in p.get_devices()]
        except cl.Error as error:
            raise DeviceError(f"pyopencl finds no OpenCL driver ({error})") from None
        wanted = os.environ.get("POLYC_OPENCL", "").lower()
        devices = [d for d in devices if wanted in f"{d.platform.name} {d.name}".lower()]
        if not devices:
            raise DeviceError(f"pyopencl finds no OpenCL device{f' named {wanted}' if wanted else ''}")
        self._device = min(devices, key=lambda d: not d.type & cl.device_type.GPU)
        self._context = cl.Context([self._device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self._queue = cl.CommandQueue(self._context, properties=profiling)
        self._profiling = profiling
        self.name = f"{self._device.name.strip()}, {self._device.platform.name}"
        exact = cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        self.exact_division = bool(self._device.single_fp_config & exact)

    def architecture(self) -> str:
        return "opencl"

    def load(self, program: KernelText, target: GpuTarget, image: bytes | None = None) -> dict[str, Any]:
        options = OPTIONS + (" -cl-fp32-correctly-rounded-divide-sqrt" if self.exact_division else "")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._cl.CompilerWarning)
                built = self._cl.Program(self._context, program.text).build(options)
            return {k.name: self._cl.Kernel(built, k.name) for k in program.kernels.values()}
        except self._cl.Error as error:
            first = next((line for line in str(error).splitlines() if "error" in line), first_line(error))
            if "unknown target CPU" in first:  # pocl/pocl#1049
                raise DeviceError(
                    f"{self.name}: the driver's compiler is older than this CPU and builds nothing ({first.strip()});"
                    " take a newer driver, or name another device by $POLYC_OPENCL"
                ) from None
            raise DeviceError(f"the OpenCL driver refused the generated text: {first.strip()}") from None

    def allocate(self, nbytes: int) -> Any:
        try:
            return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, max(1, nbytes))
        except self._cl.Error as error:
            raise DeviceError(f"no {nbytes} bytes on {self.name}: {error}") from None

    def upload(self, to: Pointer, array: np.ndarray, stream: Any = None) -> None:
        if array.nbytes:
            bytes_ = array.reshape(-1).view(np.uint8)
            self._cl.enqueue_copy(stream or self._queue, to.memory, bytes_, dst_offset=to.offset, is_blocking=True)

    def download(self, array: np.ndarray, source: Pointer, stream: Any = None) -> None:
        if array.nbytes:
            bytes_ = array.reshape(-1).view(np.uint8)
            self._cl.enqueue_copy(stream or self._queue, bytes_, source.memory, src_offset=source.offset,
                                  is_blocking=True)  # fmt: skip

    def copy(self, to: Pointer, source: Pointer, nbytes: int, stream: Any = None) -> None:
        if nbytes:
            self._cl.enqueue_copy(stream or self._queue, to.memory, source.memory, byte_count=nbytes,
                                  src_offset=source.offset, dst_offset=to.offset)  # fmt: skip

    def launch(self, spec: LaunchSpec, stream: Any = None) -> None:
        values: list[Any] = []
        for argument, value in zip(spec.kernel.arguments, spec.arguments):
            if isinstance(value, Pointer):  # OpenCL 1.2 has no addresses: a buffer and an element number
                values += [value.memory, np.int64(value.offset // argument.dtype.bytes)]
            else:
                values.append(np.int64(value))
        threads = spec.kernel.threads
        size = tuple(g * t for g, t in zip(spec.grid, threads))
        try:
            spec.handle.set_args(*values)
            self._cl.enqueue_nd_range_kernel(stream or self._queue, spec.handle, size, threads)
        except self._cl.Error as error:
            raise DeviceError(f"the OpenCL driver does not launch {spec.kernel.name}: {error}") from None

    def stream(self) -> Any:
        return self._cl.CommandQueue(self._context, properties=self._profiling)

    def synchronize(self, stream: Any = None) -> None:
        (stream or self._queue).finish()

    def wait_for(self, stream: int) -> None:
        self._cl.CommandQueue.from_int_ptr(stream).finish()

    def record(self, work: Callable[[Any], None]) -> Any:
        raise DeviceError("OpenCL has no graphs")

    def replay(self, recorded: Any, stream: Any = None) -> None:
        raise DeviceError("OpenCL has no graphs")

    def address(self, memory: Any) -> int:
        return int(memory.int_ptr)

    def borrow(self, address: int) -> Any:
        return self._cl.Buffer.from_int_ptr(address)

    def event(self, stream: Any = None) -> Any:
        return self._cl.enqueue_marker(stream or self._queue)

    def elapsed(self, start: Any, end: Any) -> float:
        end.wait()
        return 1e-9 * float(end.profile.end - start.profile.end)
