"""DLPack: arrays to and from other packages, without a copy and without importing them.

The protocol is a capsule around C structs (dlpack.h). What is lent has the struct of version 0.8, which every package
reads; what is taken may have that of version 1 as well, which says whether the array may be written. On CUDA the data
is an address; on OpenCL it is the `cl_mem` of a buffer, and the array starts `byte_offset` bytes into it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from polyc.poly.dtypes import BY_NAME, DType
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

CPU, CUDA, CUDA_HOST, OPENCL, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 4, 11, 13  # DLDeviceType
ON_HOST = (CPU, CUDA_HOST, ROCM_HOST)
VERSION = (1, 0)
READ_ONLY, COPIED = 1, 2  # flags
_NAME, _USED = b"dltensor", b"used_dltensor"
_VERSIONED, _USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"
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


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


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
    """What a capsule held. `strides` count elements; `loan` gives it back when it is no longer referred to."""

    data: int
    offset: int
    device_type: int
    device_id: int
    shape: tuple[int, ...]
    dtype: DType
    loan: Any
    strides: tuple[int, ...] | None
    flags: int

    @property
    def row_major(self) -> bool:
        """Whether the elements lie densely in C order (always, where no strides are given)."""
        return self.strides is None or _row_major(self.shape, self.strides)


class _Loan:
    """Another package's struct, deleted with the last reference."""

    def __init__(self, struct: _Managed | _ManagedVersioned) -> None:
        self._struct = struct

    def __del__(self) -> None:
        if self._struct.deleter:
            _Deleter(self._struct.deleter)(ctypes.addressof(self._struct))


def take(capsule: Any) -> Taken:
    """The array in a capsule, which is used up.

    Raises:
        ArgumentError: it was used before, is of a later version, or has elements that polyc lacks.
    """
    managed: _Managed | _ManagedVersioned
    if _is_valid(capsule, _NAME):
        managed, flags = _Managed.from_address(_pointer(capsule, _NAME)), 0
        _rename(capsule, _USED)
    elif _is_valid(capsule, _VERSIONED):
        managed = _ManagedVersioned.from_address(_pointer(capsule, _VERSIONED))
        if managed.major != VERSION[0]:
            raise ArgumentError(f"the DLPack capsule has version {managed.major}; polyc reads version {VERSION[0]}")
        flags = managed.flags
        _rename(capsule, _USED_VERSIONED)
    else:
        raise ArgumentError("the DLPack capsule holds no array, or was used before")
    loan, t = _Loan(managed), managed.tensor
    shape = tuple(t.shape[k] for k in range(t.ndim))
    strides = tuple(t.strides[k] for k in range(t.ndim)) if t.strides else None
    return Taken(
        t.data or 0, t.byte_offset, t.device_type, t.device_id, shape, _dtype(t), loan, strides, flags
    )  # fmt: skip


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
