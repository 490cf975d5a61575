"""Reductions, of axes and of windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyc.frontend_dsl.library.applied import (
    make_reduce,
    make_reduce_pair,
    make_reduce_windows,
    make_select_and_scatter,
)
from polyc.graph_driver.stablehlo.convert import Writer
from polyc.graph_driver.stablehlo.movement import padded
from polyc.graph_driver.stablehlo.program import Operation
from polyc.graph_driver.stablehlo.registry import integers, operation
from polyc.graph_driver.stablehlo.sink import Val, accepts
from polyc.graph_driver.stablehlo.terms import terms_of

ONNX = {"stablehlo.add": ("ReduceSum", 0.0), "stablehlo.maximum": ("ReduceMax", -np.inf),
        "stablehlo.minimum": ("ReduceMin", np.inf), "stablehlo.multiply": ("ReduceProd", 1.0)}  # fmt: skip
"""ONNX's reductions of floats, and what they begin with."""


@operation("stablehlo.reduce")
def reduce(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """One array over axes by any region, or two together."""
    axes = integers(o.attributes, "dimensions")
    arrays, starts = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    kept = [k for k in range(arrays[0].rank) if k not in axes]
    shape = [arrays[0].shape[k] for k in kept]
    plain = _onnx_reduction(w, o, arrays[0], starts[0])
    if plain is not None:
        lists = [arrays[0], w.sink.integers(axes)]
        return [w.sink.node(plain, lists, (arrays[0].dtype, shape), keepdims=0)] if axes else [arrays[0]]
    terms = terms_of(w.program, o.regions[0])
    outer, inner = int(np.prod(shape, dtype=np.int64)), int(np.prod([arrays[0].shape[k] for k in axes], dtype=np.int64))
    rows = [w.sink.reshape(w.sink.transpose(x, [*kept, *axes]), [outer, inner]) for x in arrays]
    firsts = [w.sink.reshape(v, [1]) for v in starts]
    types = [x.dtype for x in arrays]
    if len(arrays) == 1:
        made = make_reduce(terms[0], types[0], outer, inner)
    elif len(arrays) == 2:
        made = make_reduce_pair(terms[0], terms[1], types[0], types[1], outer, inner)
    else:
        raise w.refusal(o, f"reduce of {len(arrays)} arrays at once is not supported")
    return [w.sink.reshape(v, shape) for v in w.sink.loops(made, [*rows, *firsts], [[outer]] * len(arrays))]


def _onnx_reduction(w: Writer, o: Operation, x: Val, start: Val) -> str | None:
    """ONNX's operator for a reduction of floats by one operation that begins with its neutral element."""
    body = o.regions[0]
    if len(o.operands) != 2 or len(body.operations) != 2 or not x.dtype.is_float:
        return None
    names = [n for n, _ in body.arguments]
    kind, neutral = ONNX.get(body.operations[0].name, ("", 0.0))
    first = w.sink.known.get(start.name)
    if not kind or sorted(body.operations[0].operands) != sorted(names) or first is None or not accepts(kind, x.dtype):
        return None
    return kind if float(first.reshape(())) == neutral else None


@operation("stablehlo.reduce_window")
def reduce_window(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """A reduction of every window."""
    if len(operands) != 2:
        raise w.refusal(o, "reduce_window of several arrays at once is not supported")
    (_, shape), *_ = w.types(o)
    x, start = operands
    ones = [1] * x.rank
    window = integers(o.attributes, "window_dimensions", ones)
    strides = integers(o.attributes, "window_strides", ones)
    dilations = integers(o.attributes, "window_dilations", ones)
    between = [n - 1 for n in integers(o.attributes, "base_dilations", ones)]
    edges = np.reshape(integers(o.attributes, "padding", [0] * 2 * x.rank), (x.rank, 2))
    (term,) = terms_of(w.program, o.regions[0])
    x = padded(w, x, w.sink.reshape(start, []), edges[:, 0].tolist(), edges[:, 1].tolist(), between)
    made = make_reduce_windows(
        term, x.dtype, x.shape, tuple(shape), tuple(window), tuple(strides), tuple(dilations)
    )  # fmt: skip
    return w.sink.loops(made, [x, w.sink.reshape(start, [1])], [shape])


@operation("stablehlo.select_and_scatter")
def select_and_scatter(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Each element of the source joined to the chosen place of its window."""
    x, source, start = operands
    ones = [1] * x.rank
    window = integers(o.attributes, "window_dimensions", ones)
    strides = integers(o.attributes, "window_strides", ones)
    edges = np.reshape(integers(o.attributes, "padding", [0] * 2 * x.rank), (x.rank, 2))
    (chosen,), (joined,) = (terms_of(w.program, r) for r in o.regions)
    made = make_select_and_scatter(
        chosen, joined, x.dtype, x.shape, source.shape, tuple(window), tuple(strides), tuple(edges[:, 0].tolist())
    )
    return w.sink.loops(made, [x, source, w.sink.reshape(start, [1])], [x.shape])
