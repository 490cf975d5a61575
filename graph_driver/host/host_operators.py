"""Host implementations of operators for which `onnx.reference` has none, or a wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun


class GatherElements(OpRun):
    """onnx.reference reads the data along the wrong axis when the indices have one row and more columns."""

    op_domain = ""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray]:
        part = tuple(slice(None) if d == axis % data.ndim else slice(n) for d, n in enumerate(indices.shape))
        return (np.take_along_axis(data[part], indices, axis),)


class DequantizeLinear(OpRun):
    """The form of opsets 10 and 13, which onnx.reference lacks: one scale, or one for each index of an axis."""

    op_domain = ""

    def _run(
        self, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, axis: int = 1, **newer: Any
    ) -> tuple[Any]:
        """`newer` are the attributes of later opsets, which onnx fills with their defaults."""
        shape = [1] * x.ndim
        if scale.size > 1:
            shape[axis] = scale.size
        shift = 0 if zero is None else zero.astype(np.int32).reshape(shape if zero.size > 1 else ())
        steps = x.astype(np.int32) - shift
        return (steps.astype(scale.dtype) * scale.reshape(shape if scale.size > 1 else ()),)


def replacements(opsets: Mapping[str, int]) -> list[type[OpRun]]:
    """What to run instead of onnx.reference's own operators in these operator sets."""
    return [GatherElements, *([DequantizeLinear] if opsets.get("", 19) < 19 else [])]
