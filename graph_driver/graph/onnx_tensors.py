"""ONNX tensors to NumPy, distrusting the file: claimed sizes, external files and offsets are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from polyc.graph_driver.graph.limits import check_shape
from polyc.graph_driver.graph.watched import opening
from polyc.graph_driver.graph.wording import one_line
from polyc.poly.dtypes import DType, from_numpy
from polyc.poly.errors import ModelError


def dtype_of(elem_type: int) -> DType | None:
    """polyc's type for an ONNX element type; None when polyc has none (strings, complex, 4 bits)."""
    try:
        return from_numpy(helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, TypeError, ValueError):
        return None


def elem_type_of(dtype: DType) -> int:
    """The ONNX element type of a `DType`."""
    return int(helper.np_dtype_to_tensor_dtype(dtype.np))


def to_numpy(tensor: TensorProto, folder: Path | None, what: str) -> np.ndarray:
    """The value of `tensor`; external data is mapped from a file below `folder`, not read.

    Raises:
        ModelError: the claimed size does not fit the data, the type is unknown, or the
            external file is missing, too short or outside `folder`.
    """
    shape = tuple(tensor.dims)
    dtype = dtype_of(tensor.data_type)
    check_shape(what, shape, dtype.bytes if dtype else 1)
    if tensor.data_location == TensorProto.EXTERNAL:
        if dtype is None:
            raise ModelError(f"{what}: external data of element type {tensor.data_type} is not supported")
        return _external(tensor, dtype, shape, folder, what)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype is not None and tensor.HasField("raw_data"):
        raw = tensor.raw_data
        if len(raw) != count * dtype.bytes:
            raise ModelError(f"{what} of shape {list(shape)} needs {count * dtype.bytes} bytes and has {len(raw)}")
        return np.frombuffer(raw, dtype=dtype.np).reshape(shape)
    try:
        value = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, UnicodeDecodeError) as error:
        raise ModelError(f"{what}: unreadable tensor data ({one_line(error)})") from error
    if value.shape != shape:
        raise ModelError(f"{what} claims shape {list(shape)} and holds {value.size} values")
    return value


def _external(tensor: TensorProto, dtype: DType, shape: tuple[int, ...], folder: Path | None, what: str) -> np.ndarray:
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    if folder is None or not location:
        raise ModelError(f"{what}: external data without a {'location' if folder else 'folder to look in'}")
    if "\0" in location:
        raise ModelError(f"{what}: the name of its external data file has a NUL byte in it")
    root = folder.resolve()
    path = (root / location).resolve()
    if root not in path.parents:
        raise ModelError(f"{what}: external data file '{location}' lies outside the model's folder")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
        if path.exists() and not path.is_file():
            raise ModelError(f"{what}: external data file '{location}' is no ordinary file")
        opening(location, path)
        available = path.stat().st_size
    except ValueError:
        raise ModelError(f"{what}: external data offset or length is not a number") from None
    except OSError as error:
        raise ModelError(f"{what}: cannot open external data file '{location}': {error.strerror}") from None
    needed = int(np.prod(shape, dtype=np.int64)) * dtype.bytes
    if length >= 0 and length != needed:
        raise ModelError(f"{what}: external data has {length} bytes, the shape needs {needed}")
    if offset < 0 or offset + needed > available:
        raise ModelError(f"{what}: external data file '{location}' is too short ({available} bytes)")
    if needed == 0:
        return np.zeros(shape, dtype.np)
    raw = np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(needed,))
    return np.frombuffer(raw, dtype=dtype.np).reshape(shape)


def sparse_to_numpy(tensor: onnx.SparseTensorProto, what: str) -> np.ndarray:
    """A dense copy of a sparse initializer (COO indices, linear or one row a value).

    Raises:
        ModelError: an index lies outside, or there is not one for each value.
    """
    shape = tuple(tensor.dims)
    values = to_numpy(tensor.values, None, what)
    indices = to_numpy(tensor.indices, None, what)
    check_shape(what, shape, values.dtype.itemsize)
    dense = np.zeros(shape, values.dtype)
    try:
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        raise ModelError(f"{what}: bad sparse indices ({one_line(error)})") from error
    return dense


def attributes(node: onnx.NodeProto, what: str) -> dict[str, Any]:
    """A node's attributes as Python values; tensors as arrays, graphs stay protos.

    Raises:
        ModelError: an attribute cannot be read.
    """
    out: dict[str, Any] = {}
    for a in node.attribute:
        if a.type == onnx.AttributeProto.TENSOR:
            out[a.name] = to_numpy(a.t, None, f"{what}: attribute {a.name}")
            continue
        try:
            value = helper.get_attribute_value(a)
        except (ValueError, TypeError) as error:
            raise ModelError(f"{what}: unreadable attribute {a.name} ({one_line(error)})") from error
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif a.type == onnx.AttributeProto.STRINGS:
            value = [v.decode("utf-8", "replace") for v in value]
        elif a.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            value = list(value)
        out[a.name] = value
    return out
