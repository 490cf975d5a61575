"""The thin device layer: what every driver interface can do, and which one is there.

Looked for in this order: pycuda, cuda-bindings (both need NVIDIA's driver), pyopencl (any device).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from polyc.emit.gpu.program import KernelInfo, KernelText
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget


class DeviceError(BuildError):
    """There is no device, or its driver refused something."""

    code = "P310"


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in memory of a device: `memory` is the driver's object, `offset` counts bytes."""

    memory: Any
    offset: int = 0


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A kernel with everything that a launch needs."""

    kernel: KernelInfo
    handle: Any
    grid: tuple[int, int, int]
    arguments: tuple[Pointer | int, ...]


def launch_spec(kernel: KernelInfo, handle: Any, grid: tuple[int, int, int], arguments: Sequence[Pointer | int],
                ) -> LaunchSpec:  # fmt: skip
    """A launch with its arguments checked.

    Raises:
        DeviceError: an array starts where the kernel's wide accesses cannot.
    """
    for wanted, given in zip(kernel.arguments, arguments, strict=True):
        if isinstance(given, Pointer) and given.offset % wanted.align:
            raise DeviceError(
                f"{kernel.name} reads or writes '{wanted.name}' {wanted.align} bytes at a time, "
                f"but it starts at byte {given.offset} of its memory"
            )
    return LaunchSpec(kernel, handle, grid, tuple(arguments))


class Device(Protocol):
    """One device through one driver interface. `stream=None` is the default stream; copies and
    launches of one stream happen in order."""

    name: str
    interface: str
    language: str
    dlpack_type: int

    def architecture(self) -> str:
        """The target's name (`sm_90`), or `opencl`."""

    def load(self, program: KernelText, target: GpuTarget, image: bytes | None = None) -> dict[str, Any]:
        """Handles of the program's kernels by their symbols; `image` is machine code that was made before."""

    def allocate(self, nbytes: int) -> Any:
        """Uninitialised memory, freed when the last reference goes."""

    def upload(self, to: Pointer, array: np.ndarray, stream: Any = None) -> None:
        """Copy a contiguous array to the device (done when the call returns)."""

    def download(self, array: np.ndarray, source: Pointer, stream: Any = None) -> None:
        """Copy to a contiguous array, after everything before in the stream."""

    def copy(self, to: Pointer, source: Pointer, nbytes: int, stream: Any = None) -> None:
        """Copy within the device."""

    def launch(self, spec: LaunchSpec, stream: Any = None) -> None:
        """Start a kernel."""

    def stream(self) -> Any:
        """A new queue of work."""

    def synchronize(self, stream: Any = None) -> None:
        """Wait until all work of the stream is done."""

    def wait_for(self, stream: int) -> None:
        """Wait for a stream of another package, known by its address."""

    def record(self, work: Callable[[Any], None]) -> Any:
        """What `work(stream)` puts into a stream, for `replay`; nothing of it runs now.

        Raises:
            DeviceError: the driver cannot.
        """

    def replay(self, recorded: Any, stream: Any = None) -> None:
        """Start all that was recorded."""

    def address(self, memory: Any) -> int:
        """What other packages know the driver's memory object by."""

    def borrow(self, address: int) -> Any:
        """A memory object for memory of another package, which keeps it."""

    def event(self, stream: Any = None) -> Any:
        """A mark in the stream."""

    def elapsed(self, start: Any, end: Any) -> float:
        """Seconds between two events (waits for the second)."""


# Interface -> (module of ours, its class, the package that it needs).
_INTERFACES = {
    "pycuda": ("polyc.emit.gpu.devices.pycuda_device", "PycudaDevice", "pycuda"),
    "cuda-bindings": ("polyc.emit.gpu.devices.cuda_device", "CudaDevice", "cuda.bindings"),
    "pyopencl": ("polyc.emit.gpu.devices.opencl_device", "OpenclDevice", "pyopencl"),
}
LANGUAGES = {"cuda": ("pycuda", "cuda-bindings"), "opencl": ("pyopencl",)}


@functools.cache
def open_device(language: str) -> Device:
    """The first device for `cuda` or `opencl` text that some interface finds.

    Raises:
        DeviceError: there is none; the message is one line that says what was looked for.
    """
    reasons = []
    for interface in LANGUAGES[language]:
        try:
            return open_interface(interface)
        except DeviceError as error:
            reasons.append(str(error))
    raise DeviceError(f"no GPU here for {language}: {'; '.join(reasons)}")


def open_interface(interface: str) -> Device:
    """The device that one interface finds.

    Raises:
        DeviceError: the package, the driver or a device is missing.
    """
    module, name, package = _INTERFACES[interface]
    if not _installed(package):
        raise DeviceError(f"{interface} is not installed")
    make: Callable[[], Device] = getattr(importlib.import_module(module), name)
    return make()


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False


def found() -> dict[str, str]:
    """Interface -> the device that it finds, or why none (for `polyc doctor`)."""
    out = {}
    for interface in _INTERFACES:
        try:
            device = open_interface(interface)
            out[interface] = f"{device.name} ({device.architecture()})"
        except DeviceError as error:
            out[interface] = f"none: {error}"
    return out


def cuda_architecture() -> str | None:
    """The architecture of the CUDA device that is here (`sm_90`); None without one."""
    try:
        return open_device("cuda").architecture()
    except DeviceError:
        return None


def check_runs_on(device: Device, target: GpuTarget) -> None:
    """Refuse code for another architecture. NVIDIA's code runs where the major number is the same and the minor one
    no smaller; that of `sm_90a` and its like runs nowhere else.

    Raises:
        DeviceError: the device does not run it.
    """
    here = device.architecture()
    if device.language != "cuda" or target.arch in (here, here + "a"):
        return
    if target.arch[:-1] != here[:-1] or target.arch > here:
        raise DeviceError(f"the code is for {target.arch}, but {device.name} is {here}: compile with --target {here}")


def packed(arguments: Sequence[Pointer | int]) -> list[int]:
    """CUDA's arguments as 64-bit words: addresses and sizes."""
    return [int(a.memory) + a.offset if isinstance(a, Pointer) else a for a in arguments]


def cubin_for(program: KernelText, target: GpuTarget) -> bytes:
    """Machine code for a CUDA device.

    Raises:
        BuildError: no CUDA compiler here.
    """
    from polyc.emit.gpu.devices.nvidia import compile_cubin

    return compile_cubin(program, target).image
