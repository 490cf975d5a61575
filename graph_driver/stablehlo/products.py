"""Products of matrices and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from polyc.graph_driver.stablehlo.convert import Writer
from polyc.graph_driver.stablehlo.movement import padded
from polyc.graph_driver.stablehlo.program import Operation
from polyc.graph_driver.stablehlo.registry import integers, operation
from polyc.graph_driver.stablehlo.sink import Val, accepts
from polyc.poly.dtypes import BY_NAME, DType, bool_


@operation("stablehlo.dot_general", "stablehlo.dot")
def dot_general(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """A batch of products: batch axes first, then those of the left, then of the right operand."""
    (dtype, shape), *_ = w.types(o)
    a, b = operands
    numbers = o.attributes.get("dot_dimension_numbers", {})
    batch: list[list[int]]
    if o.name == "stablehlo.dot":
        batch, summed = [[], []], [[a.rank - 1], [0]]
    else:
        batch, summed = _axes(o, numbers, "batching"), _axes(o, numbers, "contracting")
    free = [[k for k in range(x.rank) if k not in batch[n] + summed[n]] for n, x in enumerate(operands)]
    inside = _product_type(w, o, dtype)
    s = w.sink
    rows = [prod(x.shape[k] for k in part) for x, part in ((a, batch[0]), (a, free[0]), (a, summed[0]), (b, free[1]))]
    left = s.reshape(s.transpose(s.cast(a, inside), [*batch[0], *free[0], *summed[0]]), rows[:3])
    right = s.transpose(s.cast(b, inside), [*batch[1], *summed[1], *free[1]])
    right = s.reshape(right, [rows[0], rows[2], rows[3]])
    made = s.node("MatMul", [left, right], (inside, [rows[0], rows[1], rows[3]]))
    return [s.reshape(s.cast(made, dtype), shape)]


def _axes(o: Operation, numbers: dict[str, Any], name: str) -> list[list[int]]:
    pretty = o.attributes.get(f"{name}_dims")
    if pretty is not None:
        return [list(p) for p in pretty]
    return [integers(numbers, f"{side}_{name}_dimensions") for side in ("lhs", "rhs")]


def _product_type(w: Writer, o: Operation, dtype: DType) -> DType:
    """The type to multiply in: narrow integers wrap as the low bits of wide ones."""
    if accepts("MatMul", dtype):
        return dtype
    if dtype == bool_:
        raise w.refusal(o, f"{o.name} of truth values is not supported")
    return BY_NAME["i32"]


@operation("stablehlo.convolution")
def convolution(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Any layout, padding, strides and dilations; groups of channels and of the batch."""
    (dtype, shape), *_ = w.types(o)
    if not dtype.is_float:
        raise w.refusal(o, f"convolution of {dtype} is not supported")
    s = w.sink
    spatial = len(shape) - 2
    x, k = (s.cast(v, dtype) for v in operands)
    inputs, kernels, outputs = _dimension_numbers(w, o)
    x = s.transpose(x, [inputs.index(c) for c in ("b", "f", *range(spatial))])
    k = s.transpose(k, [kernels.index(c) for c in ("o", "i", *range(spatial))])
    get = _window(o, spatial)
    turned = [n + 2 for n, r in enumerate(get["reverse"]) if r]
    if turned:
        ends = [[-1] * len(turned), [-(1 << 62)] * len(turned), turned, [-1] * len(turned)]
        k = s.node("Slice", [k, *map(s.integers, ends)], (k.dtype, k.shape))
    low, high = [p[0] for p in get["pad"]], [p[1] for p in get["pad"]]
    between = [n - 1 for n in get["lhs_dilate"]]
    if any(between) or min([*low, *high], default=0) < 0:
        zero = s.constant(np.zeros((), dtype.np), dtype)
        x = padded(w, x, zero, [0, 0, *low], [0, 0, *high], [0, 0, *between])
        low = high = [0] * spatial
    groups = int(o.attributes.get("feature_group_count", 1))
    batches = int(o.attributes.get("batch_group_count", 1))
    if batches > 1:
        n, f, *rest = x.shape
        split = s.reshape(x, [batches, n // batches, f, *rest])
        order = [1, 0, 2, *range(3, 3 + spatial)]
        x, groups = s.reshape(s.transpose(split, order), [n // batches, batches * f, *rest]), batches
    place = [outputs.index(c) for c in ("b", "f", *range(spatial))]
    if not spatial:
        raise w.refusal(o, "convolution without spatial axes is not supported")
    made = s.node(
        "Conv", [x, k], (dtype, [shape[p] for p in place]), group=groups, pads=[*low, *high], strides=get["stride"],
        dilations=get["rhs_dilate"], kernel_shape=list(k.shape[2:]),
    )  # fmt: skip
    return [s.transpose(made, [place.index(d) for d in range(len(shape))])]


def _dimension_numbers(w: Writer, o: Operation) -> list[list[Any]]:
    """The axes of the input, the kernel and the output: letters and numbers of spatial axes."""
    found = o.attributes.get("dim_numbers", o.attributes.get("dimension_numbers"))
    if isinstance(found, list) and len(found) == 3:
        return found
    raise w.refusal(o, "dimension numbers of a convolution are written as [b, f, 0]x[o, i, 0]->[b, f, 0]")


def _window(o: Operation, spatial: int) -> dict[str, Any]:
    """Strides, padding, dilations and reversal of each spatial axis, from either form."""
    ones = [1] * spatial
    window = o.attributes.get("window", {})
    names = {"stride": "window_strides", "lhs_dilate": "lhs_dilation", "rhs_dilate": "rhs_dilation"}
    found: dict[str, Any] = {
        short: integers(window, short, integers(o.attributes, long, ones)) for short, long in names.items()
    }
    pad = window.get("pad", o.attributes.get("padding"))
    found["pad"] = [[0, 0]] * spatial if pad is None else np.reshape(pad, (spatial, 2)).tolist()
    found["reverse"] = window.get("reverse", o.attributes.get("window_reversal", [False] * spatial))
    return found
