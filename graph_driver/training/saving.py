"""What training keeps: parameters and state as a file of NumPy, the trained model as ONNX."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from polyc.graph_driver.training.prepare import Prepared
from polyc.poly.errors import BuildError, ModelError


def exported(prepared: Prepared, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A copy of the model that was given, with these values for its weights."""
    proto = onnx.ModelProto()
    proto.CopyFrom(prepared.given)
    for tensor in proto.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[tensor.name]), tensor.name))
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.output[0] in values:
            for a in node.attribute:
                a.t.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[node.output[0]])))
    return proto


def save(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name. What was there stays until all is written.

    Raises:
        BuildError: it cannot be written.
    """
    place = Path(path)
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(unfinished, "w") as file:  # what `np.savez` writes, with names that no keyword can have
            for name, value in arrays.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)
        unfinished.replace(place)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise BuildError(f"cannot write {path}: {error.strerror}") from None


def read(path: str | Path) -> dict[str, np.ndarray]:
    """Arrays by name. Raises `ModelError`: the file cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {n: file[n] for n in file.files}
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ModelError(f"'{path}' is no state of a training: {error}") from None


def check(path: str | Path, found: Mapping[str, np.ndarray], places: Mapping[str, np.ndarray]) -> None:
    """Raise `ModelError` unless what was found has the names, types and shapes of `places`."""
    if odd := sorted(places.keys() ^ found.keys()):
        raise ModelError(f"'{path}' is of another model: it differs in '{odd[0]}'")
    for name, place in places.items():
        if (found[name].shape, found[name].dtype) != (place.shape, place.dtype):
            there = f"{found[name].dtype}{list(found[name].shape)}"
            raise ModelError(f"'{path}' is of another model: '{name}' is {there}, not {place.dtype}{list(place.shape)}")
