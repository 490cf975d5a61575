"""Host implementations of operators for which `onnx.reference` has none, or a wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_max_pool, op_roi_align
from onnx.reference.ops._op_list import load_op

from polyc.graph_driver.host.loops import Loop, Scan


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


class Softmax(OpRun):
    """Exponentials by their sum: along an axis, before opset 13 over it and all behind it. (onnx.reference has the
    last form alone.)"""

    op_domain = ""

    def _run(self, x: np.ndarray, axis: Any = None) -> tuple[np.ndarray]:
        shifted, axes = self._shifted(x)
        y = np.exp(shifted)
        return (y / y.sum(axis=axes, keepdims=True),)

    def _shifted(self, x: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
        """Without the largest element, which is 0 then, and the axes that belong together."""
        axes = self._axes(x.ndim)
        return x - x.max(axis=axes, keepdims=True), axes

    def _axes(self, rank: int) -> tuple[int, ...]:
        old = self.run_params["opsets"].get("", 13) < 13
        given = [a.i for a in self.onnx_node.attribute if a.name == "axis"]
        first = int(given[0]) if given else 1 if old else -1
        return tuple(range(first % rank if first < 0 else first, rank)) if old else (first,)


class LogSoftmax(Softmax):
    """The logarithm of it."""

    def _run(self, x: np.ndarray, axis: Any = None) -> tuple[np.ndarray]:
        shifted, axes = self._shifted(x)
        return (shifted - np.log(np.exp(shifted).sum(axis=axes, keepdims=True)),)


class Hardmax(Softmax):
    """One at the first of the largest elements, else zero."""

    def _run(self, x: np.ndarray, axis: Any = None) -> tuple[np.ndarray]:
        axes = self._axes(x.ndim)
        last = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
        flat = last.reshape(*last.shape[: x.ndim - len(axes)], -1)
        one = (np.arange(flat.shape[-1]) == flat.argmax(axis=-1)[..., None]).astype(x.dtype)
        return (np.moveaxis(one.reshape(last.shape), range(x.ndim - len(axes), x.ndim), axes),)


class BatchNormalization(OpRun):
    """Opsets 7 to 13 with one result: the given means and variances. (onnx.reference takes those of the data.)"""

    op_domain = ""

    def _run(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray,
        epsilon: float = 1e-5, **training: Any,
    ) -> tuple[np.ndarray]:  # fmt: skip
        """`training` are attributes of other results."""
        shape = (-1,) + (1,) * (x.ndim - 2)
        by = scale / np.sqrt(var + np.asarray(epsilon, var.dtype))
        return (((x - mean.reshape(shape)) * by.reshape(shape) + bias.reshape(shape)).astype(x.dtype),)


class GlobalMaxPool(OpRun):
    """The largest element of each channel. (That of onnx.reference is for two spatial axes.)"""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(op_max_pool.MaxPool):  # type: ignore[misc]
    """With positions. (Where strides are 1, onnx.reference finds them in a padded image; its other way is right.)"""

    op_domain = ""

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray, ...]:
        if len(self.onnx_node.output) < 2:
            return tuple(super()._run(x, **attributes))
        attributes["strides"] = attributes.get("strides") or [1] * (x.ndim - 2)
        return tuple(self._max_pool(x, **attributes))


class RoiAlign(op_roi_align.RoiAlign):  # type: ignore[misc]
    """Opset 10, whose coordinates are those that later opsets call `output_half_pixel`."""

    op_domain = ""

    def _run(self, *inputs: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
        return tuple(super()._run(*inputs, **attributes | {"coordinate_transformation_mode": "output_half_pixel"}))


class QuantizeLinear(OpRun):
    """Codes of up to 16 bits. (onnx.reference rounds to 32 bits before it limits, which wraps.)"""

    op_domain = ""

    def _run(
        self, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, axis: Any = None, **newer: Any
    ) -> tuple[np.ndarray]:
        kind = np.dtype(np.uint8) if zero is None else zero.dtype
        if kind.name not in ("int8", "uint8", "int16", "uint16") or scale.ndim > 1 or newer.get("output_dtype"):
            given = (x, scale) if zero is None else (x, scale, zero)
            found = {k: v for k, v in {"axis": axis, **newer}.items() if v is not None}
            theirs = load_op("", "QuantizeLinear", self.run_params["opsets"].get("", 13))
            return tuple(theirs(self.onnx_node, self.run_params)._run(*given, **found))
        shape = [1] * x.ndim
        if scale.size > 1:
            shape[1 if axis is None else int(axis)] = scale.size
        codes = np.rint(x / scale.reshape(shape if scale.size > 1 else ()))
        if zero is not None:
            codes += zero.astype(codes.dtype).reshape(shape if zero.size > 1 else ())
        return (np.clip(codes, np.iinfo(kind).min, np.iinfo(kind).max).astype(kind),)


class Pad(OpRun):
    """onnx.reference has no negative pads: they crop, before what is left is surrounded."""

    op_domain = ""

    def _run(
        self,
        x: np.ndarray,
        pads: Any = None,
        fill: np.ndarray | None = None,
        axes: np.ndarray | None = None,
        mode: Any = None,
        value: float | None = None,
        paddings: Any = None,
    ) -> tuple[np.ndarray]:
        """`pads`, `fill` and `axes` were attributes (`paddings`, `value`) in older opsets."""
        begin, end = np.split(np.asarray(paddings if pads is None else pads), 2)
        where = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
        left, widths = [slice(None)] * x.ndim, [(0, 0)] * x.ndim
        for a, b, e in zip(where, begin.tolist(), end.tolist(), strict=True):
            left[a] = slice(max(0, -b), x.shape[a] + min(0, e))
            widths[a] = (max(0, b), max(0, e))
        if mode not in (None, "constant"):
            return (np.pad(x[tuple(left)], widths, mode),)
        given = value or 0 if fill is None else fill.reshape(-1)[0]
        return (np.pad(x[tuple(left)], widths, constant_values=given),)


class ZipMap(OpRun):
    """Rows as dicts from labels to numbers: what ONNX Runtime gives. (onnx.reference has none.)"""

    op_domain = "ai.onnx.ml"

    def _run(self, x: np.ndarray, classlabels_int64s: Any = None, classlabels_strings: Any = None) -> tuple[Any]:
        labels = list(classlabels_int64s or classlabels_strings or ())
        rows = x.reshape(-1, x.shape[-1])
        if len(labels) != rows.shape[1]:
            raise ValueError(f"{len(labels)} labels for {rows.shape[1]} columns")
        return ([dict(zip(labels, row, strict=True)) for row in rows.tolist()],)


def replacements(opsets: Mapping[str, int]) -> list[type[OpRun]]:
    """What to run instead of onnx.reference's own operators in these operator sets."""
    version = opsets.get("", 19)
    found = [GatherElements, GlobalMaxPool, Loop, MaxPool, Pad, QuantizeLinear]
    found += [ZipMap] if "ai.onnx.ml" in opsets else []
    found += [Scan] if version >= 9 else []
    found += [DequantizeLinear] if version < 19 else []
    found += [RoiAlign] if version < 16 else []
    found += [BatchNormalization] if 7 <= version < 14 else []
    return found + ([Softmax, LogSoftmax, Hardmax] if version < 13 else [])
