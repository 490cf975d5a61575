"""Indices outside of what they choose from, in nodes that the host runs: the error of nodes that are compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc.poly.errors import BoundsError

ALONG_AN_AXIS = ("Gather", "GatherElements", "ScatterElements", "Scatter")
COORDINATES = ("GatherND", "ScatterND")


def check_indices(op_type: str, node: str, attrs: Mapping[str, Any], values: Sequence[Any]) -> None:
    """Look at the second operand of an operator of ONNX's own that chooses from its first one.

    Negative indices count from the end. Operands that fit no such operator are left to who runs it.

    Raises:
        BoundsError: an index is outside; the array is called `data`, as in the operator's definition.
    """
    if op_type not in (*ALONG_AN_AXIS, *COORDINATES) or not all(isinstance(v, np.ndarray) for v in values[:2]):
        return
    data, indices = values[:2]
    if not indices.size:
        return
    if op_type in ALONG_AN_AXIS:
        axis = int(attrs.get("axis", 0))
        if -data.ndim <= axis < data.ndim:
            _check(op_type, node, axis % data.ndim, data.shape, indices)
        return
    first = int(attrs.get("batch_dims", 0))
    for k in range(min(indices.shape[-1], data.ndim - first) if indices.ndim else 0):
        _check(op_type, node, first + k, data.shape, indices[..., k])


def _check(op_type: str, node: str, axis: int, shape: Sequence[int], indices: np.ndarray) -> None:
    size = shape[axis]
    for index in (int(indices.min()), int(indices.max())):
        if not -size <= index < size:
            raise BoundsError(f"{op_type} node '{node}'", None, "data", axis, index, size)
