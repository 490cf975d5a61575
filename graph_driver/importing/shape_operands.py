"""Inputs whose values decide shapes: the axes of a reduction, the new shape of a reshape.

A model that takes them at run time is compiled once for each value (`bind_values`), as it is
for each shape. Which inputs these are follows from the operators alone: an operand listed in
`DECIDING` is needed, and so is everything it is computed from, up to inputs of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from polyc.graph_driver.graph.subgraphs import nodes_of

MAX_ELEMENTS = 64  # of an input that is still taken for a shape, not for data

# Operator -> positions of operands that decide an output's shape, or which loops there are.
DECIDING: dict[str, tuple[int, ...]] = {
    **{f"Reduce{kind}": (1,) for kind in ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum",
                                          "LogSumExp")},
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Squeeze": (1,),
    "Unsqueeze": (1,), "Split": (1,), "Resize": (1, 2, 3), "Upsample": (1,), "TopK": (1,), "OneHot": (1,),
    "ConstantOfShape": (0,), "Range": (0, 1, 2), "CumSum": (1,), "CumProd": (1,), "Trilu": (1,), "DFT": (1, 2),
    "STFT": (1, 3), "HannWindow": (0,), "HammingWindow": (0,), "BlackmanWindow": (0,), "CenterCropPad": (1,),
    "MelWeightMatrix": (0, 1, 2, 3, 4), "Col2Im": (1, 2), "AffineGrid": (1,), "MaxUnpool": (2,), "Dropout": (2,),
    "Loop": (0, 1), "If": (0,),
}  # fmt: skip
# Their results depend on shapes only, or on data through which no shape should be traced.
BARRIERS = {"Shape", "Size", "NonZero", "Unique", "Compress", "NonMaxSuppression", "StringSplit"}


def deciding_inputs(model: onnx.ModelProto) -> tuple[str, ...]:
    """Graph inputs of rank 0 or 1 that decide shapes, in the graph's order."""
    needed: set[str] = set()
    makers: dict[str, onnx.NodeProto] = {}
    for node in nodes_of(model.graph.node):
        makers.update((o, node) for o in node.output if o)
        if node.domain in ("", "ai.onnx"):
            needed.update(node.input[k] for k in DECIDING.get(node.op_type, ()) if k < len(node.input))
    pending = list(needed)
    while pending:
        node = makers.get(pending.pop())
        if node is None or node.op_type in BARRIERS:
            continue
        results = [o.name for a in node.attribute for o in a.g.output]  # of the branches of an If
        fresh = [i for i in (*node.input, *results) if i and i not in needed]
        needed.update(fresh)
        pending += fresh
    given = {t.name for t in model.graph.initializer}
    return tuple(i.name for i in model.graph.input if i.name in needed - given and _small(i.type))


def _small(kind: onnx.TypeProto) -> bool:
    if kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
        return False
    if kind.tensor_type.elem_type == onnx.TensorProto.STRING:
        return False
    dims = kind.tensor_type.shape.dim
    return len(dims) == 0 or (len(dims) == 1 and dims[0].dim_value <= MAX_ELEMENTS)


def bind_values(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with the inputs in `values` as constants; weights are shared by copy of the protobuf."""
    if not values:
        return model
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    kept = [i for i in model.graph.input if i.name not in values]
    del bound.graph.input[:]
    bound.graph.input.extend(kept)
    bound.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    return bound
