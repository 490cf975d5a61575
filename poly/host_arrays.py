"""Arrays of other packages as NumPy arrays over the same memory: DLPack, `__array_interface__`, `__array__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from polyc.poly import dlpack
from polyc.poly.dtypes import DType, from_numpy
from polyc.poly.errors import ArgumentError
from polyc.poly.words import article, counted, first_line

_PROTOCOLS = ("__dlpack__", "__array_interface__", "__array_struct__", "__array__")


def as_array(value: Any, what: str, written: bool = False) -> ndarray[Any, Any]:
    """`value` as a plain NumPy array; `what` starts the message of a refusal.

    Nothing is copied where the package lends its memory. What is `written` must be that memory, and writable.

    Raises:
        ArgumentError: it is no array, lies on a device, hides elements (a mask), or cannot be written.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"{what}: a masked array has elements that are hidden: give .filled(...) or .data")
    if isinstance(value, ndarray):
        array = value.view(ndarray)
    elif isinstance(value, np.generic) and not written:
        return np.asarray(value)  # NumPy turns rank-0 results into scalars
    elif hasattr(type(value), "__dlpack__"):
        array = _lent(value, what, written)
    elif lends(value):
        array = _converted(value, what, written)
    else:
        raise ArgumentError(f"{what} takes a NumPy array, the argument is {article(type(value).__name__)}")
    if written and not array.flags.writeable:
        raise ArgumentError(f"{what} is written, but the array given is read-only")
    return array


def lends(value: Any) -> bool:
    """Whether a value is an array of NumPy or of another package, by its type."""
    if any(hasattr(type(value), name) for name in _PROTOCOLS) or "__array_interface__" in getattr(
        value, "__dict__", ()
    ):
        return True
    if isinstance(value, bytes):  # text, for NumPy
        return False
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def dtype_error(what: str, dtype: np.dtype[Any], wanted: DType) -> ArgumentError | None:
    """Why elements of `dtype` are not those of `wanted`; None when they are."""
    if dtype == wanted.np:
        return None
    if dtype.newbyteorder("=") == wanted.np:
        order = "big-endian" if dtype.byteorder == ">" else "of the other byte order"
        return ArgumentError(f"{what} is {wanted}, the argument is {order} ({dtype.str}): convert it with .astype")
    try:
        return ArgumentError(f"{what} is {wanted}, the argument is {from_numpy(dtype)}: convert it with .astype")
    except KeyError:
        return ArgumentError(f"{what} is {wanted}, the argument is {dtype}")


def _lent(value: Any, what: str, written: bool) -> ndarray[Any, Any]:
    """Through DLPack."""
    kind = type(value).__name__
    try:
        where = value.__dlpack_device__()
        if where[0] not in dlpack.ON_HOST:
            raise ArgumentError(f"{what}: the {kind} lies on a device (DLPack {tuple(map(int, where))}): move it here")
        try:
            capsule = value.__dlpack__(max_version=dlpack.VERSION)
        except TypeError:  # from before version 1
            capsule = value.__dlpack__()
        taken = dlpack.take(capsule)
    except ArgumentError as error:
        raise error if str(error).startswith(what) else ArgumentError(f"{what}: {error}") from None
    except Exception as error:  # the other package's own refusal
        raise ArgumentError(f"{what}: the {kind} gives no array: {first_line(error)}") from None
    if written and taken.flags & dlpack.COPIED:
        raise ArgumentError(f"{what} is written, but the {kind} lends only a copy of its memory")
    array = np.asarray(_Lent(taken))
    return array if array.dtype == taken.dtype.np else array.view(taken.dtype.np)


class _Lent:
    """The memory of a DLPack capsule as NumPy takes it; NumPy keeps this object, and with it the loan."""

    def __init__(self, taken: dlpack.Taken) -> None:
        self.loan = taken.loan
        dtype = taken.dtype.np if taken.dtype.np.kind != "V" else np.dtype(f"u{taken.dtype.bytes}")
        strides = None if taken.strides is None else tuple(s * dtype.itemsize for s in taken.strides)
        self.__array_interface__ = {
            "version": 3, "shape": taken.shape, "strides": strides, "typestr": dtype.str,
            "data": (taken.data + taken.offset, bool(taken.flags & dlpack.READ_ONLY)),
        }  # fmt: skip


def _converted(value: Any, what: str, written: bool) -> ndarray[Any, Any]:
    """Through NumPy: `__array_interface__`, a buffer, `__array__`."""
    try:
        if not written:
            return np.asarray(value).view(ndarray)
        if hasattr(type(value), "__array__"):
            return np.asarray(value.__array__(copy=False)).view(ndarray)
        return np.asarray(value, copy=False).view(ndarray)
    except Exception as error:
        if written and isinstance(error, (TypeError, ValueError)):
            kind = type(value).__name__
            raise ArgumentError(
                f"{what} is written, but the {kind} does not lend its memory: {first_line(error)}"
            ) from None
        raise ArgumentError(f"{what}: the {type(value).__name__} gives no array: {first_line(error)}") from None


Result = tuple[str, DType, tuple[int, ...]]


def given_arrays(name: str, results: Sequence[Result], out: Any) -> list[ndarray[Any, Any] | None]:
    """The arrays of `out=`, checked, in the order of the results of the operator `name`; None where it has none.

    `out` is an array, several in a list or tuple (None for results that stay new arrays), or a dict by name.

    Raises:
        ArgumentError: another number, name, dtype or shape, or an array that cannot be written.
    """
    if not results:
        raise ArgumentError(f"{name} has no results to write to out=: it updates its arguments in place")
    names = [n for n, _, _ in results]
    if isinstance(out, Mapping):
        unknown = [n for n in out if n not in names]
        if unknown:
            raise ArgumentError(f"{name} has no result '{unknown[0]}' for out= (results: {', '.join(names)})")
        arrays = [out.get(n) for n in names]
    else:
        arrays = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(arrays) != len(results):
        raise ArgumentError(
            f"{name} has {counted(len(results), 'result')}, but out= has {counted(len(arrays), 'array')}"
        )
    return [None if x is None else _given(name, result, x) for result, x in zip(results, arrays)]


def _given(name: str, result: Result, value: Any) -> ndarray[Any, Any]:
    mine, dtype, shape = result
    what = f"{name}: out= for '{mine}'"
    array = value if type(value) is ndarray else as_array(value, what, written=True)
    if array.dtype != dtype.np or array.shape != shape or not array.flags.writeable:
        found = f"{array.dtype.str if array.dtype.byteorder == '>' else array.dtype} {array.shape}"
        found += "" if array.flags.writeable else ", read-only"
        raise ArgumentError(f"{what} must be a writable {dtype.np.name} array of shape {shape}, not {found}")
    return array


def returned(out: Any, names: Sequence[str], results: Sequence[ndarray[Any, Any]]) -> Any:
    """What a call with `out=` gives back: new results, and the caller's own objects in their places."""
    if isinstance(out, Mapping):
        objects = [out.get(n) for n in names]
    elif isinstance(out, (tuple, list)):
        if all(x is not None for x in out):
            return out
        objects = list(out)
    else:
        return out
    made = [(r if r.ndim else r[()]) if mine is None else mine for r, mine in zip(results, objects)]
    return made[0] if len(made) == 1 else tuple(made)
