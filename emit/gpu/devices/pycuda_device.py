"""A CUDA device through pycuda."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.emit.gpu.devices import Device, DeviceError, LaunchSpec, Pointer, cubin_for, graphs, packed
from polyc.emit.gpu.program import KernelText
from polyc.poly import dlpack
from polyc.poly.target import GpuTarget


class PycudaDevice(Device):
    """Device 0 with its primary context. Every method may be called from one thread at a time."""

    interface = "pycuda"
    language = "cuda"
    dlpack_type = dlpack.CUDA

    def __init__(self) -> None:
        try:
            import pycuda.driver as driver

            driver.init()
            count = driver.Device.count()
        except (ImportError, RuntimeError) as error:  # no libcuda.so.1, or its cuInit failed
            raise DeviceError(f"pycuda finds no driver ({error})") from None
        if not count:
            raise DeviceError("pycuda finds a driver but no device")
        self._driver = driver
        self._device = driver.Device(0)
        self._context = self._device.retain_primary_context()
        self._context.push()
        atexit.register(self._context.pop)  # pycuda aborts the process when a context is left
        self.name = self._device.name()

    def architecture(self) -> str:
        major, minor = self._device.compute_capability()
        return f"sm_{major}{minor}"

    def load(self, program: KernelText, target: GpuTarget, image: bytes | None = None) -> dict[str, Any]:
        try:
            module = self._driver.module_from_buffer(image or cubin_for(program, target))
            handles = {}
            for kernel in program.kernels.values():
                handle = module.get_function(kernel.name)
                handle.prepare("".join("P" if a.kind == "array" else "q" for a in kernel.arguments))
                if kernel.dynamic_shared:
                    kind = self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                    handle.set_attribute(kind, kernel.dynamic_shared)
                handles[kernel.name] = handle
        except self._driver.Error as error:
            raise DeviceError(f"the CUDA driver does not load the kernels: {error}") from None
        return handles

    def allocate(self, nbytes: int) -> Any:
        try:
            return self._driver.mem_alloc(max(1, nbytes))
        except self._driver.Error as error:
            raise DeviceError(f"no {nbytes} bytes on {self.name}: {error}") from None

    def upload(self, to: Pointer, array: np.ndarray, stream: Any = None) -> None:
        if array.nbytes:
            self._driver.memcpy_htod(int(to.memory) + to.offset, array)

    def download(self, array: np.ndarray, source: Pointer, stream: Any = None) -> None:
        self.synchronize(stream)
        if array.nbytes:
            self._driver.memcpy_dtoh(array, int(source.memory) + source.offset)

    def copy(self, to: Pointer, source: Pointer, nbytes: int, stream: Any = None) -> None:
        if nbytes:
            target, start = int(to.memory) + to.offset, int(source.memory) + source.offset
            self._driver.memcpy_dtod_async(target, start, nbytes, stream)

    def launch(self, spec: LaunchSpec, stream: Any = None) -> None:
        try:
            spec.handle.prepared_async_call(
                spec.grid, spec.kernel.threads, stream, *packed(spec.arguments),
                shared_size=spec.kernel.dynamic_shared,
            )  # fmt: skip
        except self._driver.Error as error:
            raise DeviceError(f"the CUDA driver does not launch {spec.kernel.name}: {error}") from None

    def stream(self) -> Any:
        return self._driver.Stream()

    def synchronize(self, stream: Any = None) -> None:
        if stream is None:
            self._context.synchronize()
        else:
            stream.synchronize()

    def wait_for(self, stream: int) -> None:
        self._context.synchronize()  # pycuda makes no stream of an address

    def record(self, work: Callable[[Any], None]) -> graphs.Graph:
        stream = self.stream()
        return graphs.record(stream.handle, lambda: work(stream))

    def replay(self, recorded: graphs.Graph, stream: Any = None) -> None:
        recorded.launch(0 if stream is None else stream.handle)

    def address(self, memory: Any) -> int:
        return int(memory)

    def borrow(self, address: int) -> Any:
        return address

    def event(self, stream: Any = None) -> Any:
        event = self._driver.Event()
        event.record(stream)
        return event

    def elapsed(self, start: Any, end: Any) -> float:
        end.synchronize()
        return 1e-3 * float(start.time_till(end))
