"""Runs a model that polyc has written as a shared object: needs NumPy, nothing else.

    model = Model("./resnet50.so")
    outputs = model({"data": array})            # or model.run(...)

Each `Model` has an arena of its own and runs one call at a time; several run at the same time.
"""

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CARRIED = {"bf16": np.uint16, "bool_": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64}
"""NumPy's types (of bf16, which it has not, the bits); integers are named `i8` to `u64`."""


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_int64),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_int64),
    ]  # fmt: skip


class Model:
    """A loaded model; `inputs` and `outputs` are (name, dtype, shape). `threads`: 0 as many as it was compiled for.

    Raises:
        OSError: the file is no shared object of this machine.
        RuntimeError: memory is short.
    """

    def __init__(self, path: str, threads: int = 0) -> None:
        library = ctypes.CDLL(path)
        self._prefix = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "polyc_prefix"))).decode()
        self._library, self._lock, self._handle = library, threading.Lock(), ctypes.c_void_p()
        self._call("error").restype = ctypes.c_char_p
        self.inputs, self.outputs = self._tensors("input"), self._tensors("output")
        self._check(self._call("create")(ctypes.byref(self._handle), ctypes.c_int32(threads)))

    def _call(self, name: str) -> Any:
        return getattr(self._library, f"{self._prefix}_{name}")

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(self._call("error")(ctypes.c_int32(code)).decode())

    def _tensors(self, kind: str) -> list[tuple[str, str, tuple[int, ...]]]:
        describe = self._call(kind)
        describe.restype = ctypes.POINTER(_Tensor)
        every = [describe(ctypes.c_int32(k)).contents for k in range(self._call(f"{kind}s")())]
        return [(t.name.decode(), t.dtype.decode(), tuple(t.shape[: t.rank])) for t in every]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Outputs by name. Raises `ValueError` for inputs that do not fit, `RuntimeError` for what the run says."""
        given = []
        for name, dtype, shape in self.inputs:
            if name not in inputs:
                raise ValueError(f"no value for input '{name}'")
            array = np.asarray(inputs[name])
            if array.shape != shape or array.dtype != numpy_type(dtype):
                raise ValueError(f"input '{name}' is {array.dtype}{list(array.shape)}, expected {dtype}{list(shape)}")
            given.append(np.ascontiguousarray(array))
        made = [np.empty(shape, numpy_type(dtype)) for _, dtype, shape in self.outputs]
        with self._lock:
            self._check(self._call("run")(self._handle, _pointers(given), _pointers(made)))
        return {name: array for (name, _, _), array in zip(self.outputs, made)}

    __call__ = run

    def close(self) -> None:
        """Free the memory; the model cannot run any more."""
        with self._lock:
            self._call("destroy")(self._handle)
            self._handle = ctypes.c_void_p()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


def numpy_type(dtype: str) -> Any:
    """The type of an array of `dtype`."""
    return np.dtype(CARRIED[dtype] if dtype in CARRIED else f"{'int' if dtype[0] == 'i' else 'uint'}{dtype[1:]}")


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
