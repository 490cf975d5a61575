"""Arrays in the memory of a device, and what other packages' arrays look like to us."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from emit.gpu.devices import Device, DeviceError, Pointer
from poly.dtypes import DType, from_numpy
from poly.errors import ArgumentError


class DeviceArray:
    """A row-major array on a device. `numpy()` (or `np.asarray`) copies it to the host; other CUDA
    packages take it through `__cuda_array_interface__` without a copy."""

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
        return {
            "shape": self.shape,
            "typestr": self.dtype.np.str,
            "data": (int(self.pointer.memory) + self.pointer.offset, False),
            "strides": None,
            "version": 3,
        }


def empty(device: Device, shape: tuple[int, ...], dtype: DType) -> DeviceArray:
    """An uninitialised array."""
    nbytes = math.prod(shape) * dtype.bytes
    return DeviceArray(device, Pointer(device.allocate(nbytes)), shape, dtype)


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
    return DeviceArray(device, Pointer(interface["data"][0]), shape, dtype, owner=array)


def _row_major(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides: list[int] = []
    for n in reversed(shape):
        strides.insert(0, size)
        size *= n
    return tuple(strides)
