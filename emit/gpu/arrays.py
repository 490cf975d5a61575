"""Arrays in the memory of a device, and what other packages' arrays look like to us."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyc.emit.gpu.devices import Device, DeviceError, Pointer
from polyc.poly import dlpack
from polyc.poly.dtypes import DType, from_numpy
from polyc.poly.errors import ArgumentError

LEGACY_STREAM = 1  # what both protocols call CUDA's default stream, in which results are made


class DeviceArray:
    """A row-major array on a device. `numpy()` (or `np.asarray`) copies it to the host; other packages take
    it without a copy, through DLPack or, on CUDA devices, `__cuda_array_interface__`."""

    def __init__(self, device: Device, pointer: Pointer, shape: tuple[int, ...], dtype: DType, owner: Any = None):
        self.device = device
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self._owner = owner  # whose memory this is, when not ours

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.bytes

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on {self.device.name}>"

    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        out = np.empty(self.shape, self.dtype.np)
        self.device.download(out, self.pointer)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array on a device cannot be seen by NumPy without a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device.language != "cuda":
            raise AttributeError("only arrays on a CUDA device have a CUDA array interface")
        if self.dtype.np.kind == "V":
            raise AttributeError(f"the CUDA array interface has no {self.dtype}: use DLPack")
        return {
            "shape": self.shape,
            "typestr": self.dtype.np.str,
            "data": (int(self.pointer.memory) + self.pointer.offset, False),
            "strides": None,
            "stream": LEGACY_STREAM,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack_type, 0

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """The array for another package; `dl_device=(1, 0)` asks for a copy on the host.

        Raises:
            BufferError: what is asked for cannot be given.
        """
        if dl_device is not None and tuple(dl_device) == (dlpack.CPU, 0):
            if copy is False:
                raise BufferError("an array on a device cannot be seen by the host without a copy")
            return self.numpy().__dlpack__(max_version=max_version)
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array is on device {self.__dlpack_device__()}, not {tuple(dl_device)}")
        given = self
        if copy:
            given = empty(self.device, self.shape, self.dtype)
            self.device.copy(given.pointer, self.pointer, self.nbytes)
        if stream not in (-1, LEGACY_STREAM):  # -1: the taker waits by itself
            self.device.synchronize()
        place = given.pointer
        address = self.device.address(place.memory)
        return dlpack.lend(address, place.offset, self.device.dlpack_type, self.shape, self.dtype, given)


def empty(device: Device, shape: tuple[int, ...], dtype: DType) -> DeviceArray:
    """An uninitialised array."""
    nbytes = math.prod(shape) * dtype.bytes
    return DeviceArray(device, Pointer(device.allocate(nbytes)), shape, dtype)


def on_a_device(array: Any) -> bool:
    """Whether this is an array in the memory of some device, of this or another package."""
    if type(array) is np.ndarray:
        return False
    if isinstance(array, DeviceArray) or hasattr(array, "__cuda_array_interface__"):
        return True
    where = getattr(array, "__dlpack_device__", None)
    return where is not None and where()[0] not in dlpack.ON_HOST


def to_device(device: Device, array: Any) -> DeviceArray:
    """A copy of a NumPy array on the device; arrays that are there already stay where they are.

    Raises:
        ArgumentError: the array is on another device, not contiguous, or of a type that polyc lacks.
    """
    if isinstance(array, DeviceArray):
        if array.device is not device:
            raise ArgumentError(f"the array is on {array.device.name}, the kernel on {device.name}")
        return array
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _foreign(device, array, interface)
    if on_a_device(array):
        return _through_dlpack(device, array)
    host = np.ascontiguousarray(array)
    made = empty(device, np.shape(array), _dtype(host.dtype))
    device.upload(made.pointer, host)
    return made


def _dtype(dtype: Any) -> DType:
    try:
        return from_numpy(dtype)
    except KeyError:
        raise ArgumentError(f"arrays of {dtype} have no counterpart in polyc") from None


def _foreign(device: Device, array: Any, interface: dict[str, Any]) -> DeviceArray:
    """The memory of another package's CUDA array."""
    if device.language != "cuda":
        raise DeviceError(f"a CUDA array cannot be used on {device.name} ({device.interface})")
    shape, dtype = tuple(interface["shape"]), _dtype(np.dtype(interface["typestr"]))
    strides = interface.get("strides")
    if strides is not None and tuple(strides) != _row_major(shape, dtype.bytes):
        raise ArgumentError("the CUDA array is not contiguous (row-major)")
    stream = interface.get("stream")
    if stream not in (None, LEGACY_STREAM):
        device.wait_for(stream)
    return DeviceArray(device, Pointer(interface["data"][0]), shape, dtype, owner=array)


def _through_dlpack(device: Device, array: Any) -> DeviceArray:
    """The memory of another package's array."""
    kind, number = array.__dlpack_device__()
    managed = kind == dlpack.CUDA_MANAGED and device.dlpack_type == dlpack.CUDA
    if (kind != device.dlpack_type and not managed) or number != 0:
        raise DeviceError(f"an array on DLPack device {(int(kind), number)} cannot be used on {device.name}")
    taken = dlpack.take(array.__dlpack__(stream=LEGACY_STREAM if device.language == "cuda" else None))
    if not taken.row_major:
        raise ArgumentError("the DLPack array is not contiguous (row-major)")
    place = Pointer(device.borrow(taken.data), taken.offset)
    return DeviceArray(device, place, taken.shape, taken.dtype, owner=(array, taken.loan))


def _row_major(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides: list[int] = []
    for n in reversed(shape):
        strides.insert(0, size)
        size *= n
    return tuple(strides)
