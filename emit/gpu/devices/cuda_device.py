"""A CUDA device through cuda-bindings (NVIDIA's own Python interface to the driver)."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.emit.gpu.devices import Device, DeviceError, LaunchSpec, Pointer, cubin_for, graphs, packed
from polyc.emit.gpu.program import KernelText
from polyc.poly import dlpack
from polyc.poly.target import GpuTarget


class Memory:
    """An address that is freed with its last reference."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __int__(self) -> int:
        return self.address


class CudaDevice(Device):
    """Device 0 with its primary context. Every method may be called from one thread at a time."""

    interface = "cuda-bindings"
    language = "cuda"
    dlpack_type = dlpack.CUDA

    def __init__(self) -> None:
        from cuda.bindings import driver

        self._driver = driver
        try:
            self._checked(driver.cuInit(0))
        except (RuntimeError, DeviceError) as error:
            raise DeviceError(f"cuda-bindings finds no driver ({error})") from None
        (count,) = self._checked(driver.cuDeviceGetCount())
        if not count:
            raise DeviceError("cuda-bindings finds a driver but no device")
        (self._device,) = self._checked(driver.cuDeviceGet(0))
        (context,) = self._checked(driver.cuDevicePrimaryCtxRetain(self._device))
        self._checked(driver.cuCtxSetCurrent(context))
        (name,) = self._checked(driver.cuDeviceGetName(100, self._device))
        self.name = name.split(b"\0")[0].decode()

    def _checked(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        if int(result[0]):
            raise DeviceError(f"the CUDA driver says {result[0].name}")
        return result[1:]

    def architecture(self) -> str:
        kind = self._driver.CUdevice_attribute
        major, minor = (
            self._checked(self._driver.cuDeviceGetAttribute(a, self._device))[0]
            for a in (kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                      kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        )  # fmt: skip
        return f"sm_{major}{minor}"

    def load(self, program: KernelText, target: GpuTarget, image: bytes | None = None) -> dict[str, Any]:
        driver = self._driver
        (module,) = self._checked(driver.cuModuleLoadData(image or cubin_for(program, target)))
        handles = {}
        for kernel in program.kernels.values():
            (handle,) = self._checked(driver.cuModuleGetFunction(module, kernel.name.encode()))
            if kernel.dynamic_shared:
                kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self._checked(driver.cuFuncSetAttribute(handle, kind, kernel.dynamic_shared))
            handles[kernel.name] = handle
        return handles

    def allocate(self, nbytes: int) -> Memory:
        (address,) = self._checked(self._driver.cuMemAlloc(max(1, nbytes)))
        memory = Memory(int(address))
        weakref.finalize(memory, self._driver.cuMemFree, int(address))
        return memory

    def upload(self, to: Pointer, array: np.ndarray, stream: Any = None) -> None:
        if array.nbytes:
            self._checked(self._driver.cuMemcpyHtoDAsync(int(to.memory) + to.offset, array.ctypes.data, array.nbytes,
                                                         stream or 0))  # fmt: skip
            self.synchronize(stream)

    def download(self, array: np.ndarray, source: Pointer, stream: Any = None) -> None:
        if array.nbytes:
            self._checked(self._driver.cuMemcpyDtoHAsync(array.ctypes.data, int(source.memory) + source.offset,
                                                         array.nbytes, stream or 0))  # fmt: skip
            self.synchronize(stream)

    def copy(self, to: Pointer, source: Pointer, nbytes: int, stream: Any = None) -> None:
        if nbytes:
            target, start = int(to.memory) + to.offset, int(source.memory) + source.offset
            self._checked(self._driver.cuMemcpyDtoDAsync(target, start, nbytes, stream or 0))

    def launch(self, spec: LaunchSpec, stream: Any = None) -> None:
        values = tuple(packed(spec.arguments))
        types = tuple(ctypes.c_void_p if isinstance(a, Pointer) else ctypes.c_int64 for a in spec.arguments)
        self._checked(self._driver.cuLaunchKernel(
            spec.handle, *spec.grid, *spec.kernel.threads, spec.kernel.dynamic_shared, stream or 0, (values, types), 0
        ))  # fmt: skip

    def stream(self) -> Any:
        return self._checked(self._driver.cuStreamCreate(0))[0]

    def synchronize(self, stream: Any = None) -> None:
        self._checked(self._driver.cuStreamSynchronize(stream or 0))

    def wait_for(self, stream: int) -> None:
        self._checked(self._driver.cuStreamSynchronize(stream))

    def record(self, work: Callable[[Any], None]) -> graphs.Graph:
        stream = self.stream()
        return graphs.record(int(stream), lambda: work(stream))

    def replay(self, recorded: graphs.Graph, stream: Any = None) -> None:
        recorded.launch(int(stream or 0))

    def address(self, memory: Any) -> int:
        return int(memory)

    def borrow(self, address: int) -> Any:
        return address

    def event(self, stream: Any = None) -> Any:
        (event,) = self._checked(self._driver.cuEventCreate(0))
        self._checked(self._driver.cuEventRecord(event, stream or 0))
        return event

    def elapsed(self, start: Any, end: Any) -> float:
        self._checked(self._driver.cuEventSynchronize(end))
        return 1e-3 * float(self._checked(self._driver.cuEventElapsedTime(start, end))[0])
