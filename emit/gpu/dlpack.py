"""DLPack: arrays of a device to and from other packages, without a copy and without importing them.

The protocol is a capsule around C structs (dlpack.h, version 0.8, which every package reads). On CUDA the data
is an address; on OpenCL it is the `cl_mem` of a buffer, and the array starts `byte_offset` bytes into it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polyc.poly.dtypes import BY_NAME, DType
from polyc.poly.errors import ArgumentError

CPU, CUDA, OPENCL, CUDA_MANAGED = 1, 2, 4, 13  # DLDeviceType
_NAME, _USED = b"dltensor", b"used_dltensor"
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of Python's C interface."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# A capsule that dies has no reference left to count: its destructor handles it as a bare address.
_dying_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_dying_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_lent: dict[int, tuple[Any, ...]] = {}  # by address of the struct: what must live until its deleter is called


@_Deleter
def _delete(address: int) -> None:
    _lent.pop(address, None)


@_Deleter
def _forgotten(capsule: int) -> None:
    """A capsule that nobody took dies with its loan."""
    if _dying_is_valid(capsule, _NAME):
        _delete(_dying_pointer(capsule, _NAME))


def lend(data: int, offset: int, device_type: int, shape: tuple[int, ...], dtype: DType, owner: Any) -> Any:
    """A capsule for a row-major array; `owner` is kept until the taker is done with it."""
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    managed = _Managed()
    t = managed.tensor
    t.data, t.device_type, t.device_id, t.ndim = data, device_type, 0, len(shape)
    t.code, t.bits, t.lanes = _CODES["bfloat" if dtype.name == "bf16" else dtype.kind], 8 * dtype.bytes, 1
    t.shape, t.strides, t.byte_offset = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)), None, offset
    managed.deleter = ctypes.cast(_delete, ctypes.c_void_p)
    address = ctypes.addressof(managed)
    _lent[address] = (managed, sizes, owner)
    return _new(address, _NAME, ctypes.cast(_forgotten, ctypes.c_void_p))


@dataclass(frozen=True)
class Taken:
    """What a capsule held. `loan` gives it back when it is no longer referred to."""

    data: int
    offset: int
    device_type: int
    device_id: int
    shape: tuple[int, ...]
    dtype: DType
    loan: Any


class _Loan:
    """Another package's struct, deleted with the last reference."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __del__(self) -> None:
        deleter = _Managed.from_address(self._address).deleter
        if deleter:
            _Deleter(deleter)(self._address)


def take(capsule: Any) -> Taken:
    """The array in a capsule, which is used up.

    Raises:
        ArgumentError: it was used before, is not row-major, or has elements that polyc lacks.
    """
    if not _is_valid(capsule, _NAME):
        raise ArgumentError("the DLPack capsule holds no array, or was used before")
    address = _pointer(capsule, _NAME)
    _rename(capsule, _USED)
    loan = _Loan(address)
    t = _Managed.from_address(address).tensor
    shape = tuple(t.shape[k] for k in range(t.ndim))
    dtype = _dtype(t)
    if t.strides and not _row_major(shape, tuple(t.strides[k] for k in range(t.ndim))):
        raise ArgumentError("the DLPack array is not contiguous (row-major)")
    return Taken(t.data or 0, t.byte_offset, t.device_type, t.device_id, shape, dtype, loan)


def _row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements follow one another (strides of axes of size 1 mean nothing)."""
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return 0 in shape
        step *= n
    return True


def _dtype(t: _Tensor) -> DType:
    kind = next((k for k, code in _CODES.items() if code == t.code), "")
    names = {"bfloat": "bf16", "bool": "bool_"}
    name = names.get(kind) or {"int": "i", "uint": "u", "float": "f"}.get(kind, "") + str(t.bits)
    if t.lanes != 1 or name not in BY_NAME or 8 * BY_NAME[name].bytes != t.bits:
        raise ArgumentError(f"the DLPack array's elements (code {t.code}, {t.bits} bits) have no counterpart in polyc")
    return BY_NAME[name]
