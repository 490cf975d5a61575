"""Operators of language models that ONNX Runtime has and onnx does not, by ONNX's own and two of polyc's.

Microsoft's ContribOperators.md says what they mean; where it leaves room, ONNX Runtime's results decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.contrib_body import Body
from polyc.poly.errors import ModelError

DOMAIN = "com.microsoft"
INTEGERS = (
    "axis", "stash_type", "interleaved", "num_heads", "kv_num_heads", "rotary_embedding_dim", "is_packed_batching",
    "do_rotary", "rotary_interleaved", "local_window_size", "causal", "smooth_softmax", "qk_output",
    "kv_cache_bit_width", "sliding_window_cache", "grows",
)  # fmt: skip


def rms_norm(body: Body, x: str, scale: str, epsilon: float, dtype: Any, to: str = "", axis: int = -1) -> str:
    """`x` divided by the root of its mean square along the last axes from `axis` on, times `scale`."""
    if body.opset >= 23:
        return body.add("RMSNormalization", x, scale, to=to, axis=axis, epsilon=epsilon)
    axes = list(range(axis, 0))
    square = body.add("Mul", x, x)
    if body.opset >= 18:
        mean = body.add("ReduceMean", square, body.integers(*axes))
    else:
        mean = body.add("ReduceMean", square, axes=axes)
    root = body.add("Sqrt", body.add("Add", mean, body.constant(np.array(epsilon, dtype))))
    return body.add("Mul", body.add("Div", x, root), scale, to=to)


def simplified_norm(body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """`SimplifiedLayerNormalization`. Raises `ModelError` for the output that training takes."""
    if len(body.outputs) > 1 and body.outputs[1]:
        raise ModelError("SimplifiedLayerNormalization with the deviation as output is not supported")
    x = tensors[node.input[0]]
    assert x.dtype is not None
    axis = int(attrs.get("axis", -1))
    axis = axis - len(x.shape or ()) if axis >= 0 else axis
    epsilon = float(attrs.get("epsilon", 1e-5))
    rms_norm(body, node.input[0], node.input[1], epsilon, x.dtype.np, body.outputs[0], axis)


def skip_simplified_norm(
    body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """`SkipSimplifiedLayerNormalization`: of `input + skip + bias`, whose sum is the fourth output.

    Raises:
        ModelError: outputs that training takes are wanted.
    """
    inputs = [*node.input, *[""] * (4 - len(node.input))]
    outputs = [*node.output, *[""] * (4 - len(node.output))]
    if outputs[1] or outputs[2]:
        raise ModelError("SkipSimplifiedLayerNormalization with mean or deviation as outputs is not supported")
    dtype = tensors[node.input[0]].dtype
    assert dtype is not None
    total = body.add("Add", inputs[0], inputs[1], to="" if inputs[3] else outputs[3])
    if inputs[3]:
        total = body.add("Add", total, inputs[3], to=outputs[3])
    rms_norm(body, total, inputs[2], float(attrs.get("epsilon", 1e-12)), dtype.np, outputs[0])


def rotary(body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """`RotaryEmbedding`: of `[batch, rows, heads * size]` or `[batch, heads, rows, size]`.

    Raises:
        ModelError: batches are packed.
    """
    x, positions, cosine, sine = node.input[:4]
    shape, table = tensors[x].shape or (), tensors[cosine].shape or ()
    turned = int(attrs.get("rotary_embedding_dim", 0)) or 2 * table[-1]
    if attrs.get("is_packed_batching", 0):
        raise ModelError("RotaryEmbedding with packed batching is not supported")
    if len(shape) == 4:
        x = body.add("Transpose", x, perm=[0, 2, 1, 3])
        size = shape[3]
    else:
        heads = int(attrs.get("num_heads", 0))
        size = shape[2] // heads if heads else 2 * table[-1]
        x = body.add("Reshape", x, body.integers(0, 0, -1, size))
    given = tensors[positions].shape or ()
    if len(given) < 2:
        positions = _counted(body, positions, node.input[0], len(shape) - 2, tensors)
    made = turn(body, x, (cosine, sine), positions, size, turned, bool(attrs.get("interleaved", 0)))
    if len(shape) == 4:
        body.add("Transpose", made, to=body.outputs[0], perm=[0, 2, 1, 3])
    else:
        body.add("Reshape", made, body.integers(0, 0, -1), to=body.outputs[0])


def _counted(body: Body, first: str, x: str, axis: int, tensors: Mapping[str, Tensor]) -> str:
    """Positions `[1, rows]` from `first` on, one for each row of `x` along `axis`."""
    rows = (tensors[x].shape or ())[axis]
    start = body.add("Reshape", first, body.integers(1, 1))
    if isinstance(rows, int) and rows == 1:
        return start
    size = body.add("Concat", body.integers(1), body.add("Shape", x, start=axis, end=axis + 1), axis=0)
    ones = body.add("Expand", body.constant(np.ones((1, 1), np.int64)), size)
    return body.add("Add", start, body.add("CumSum", ones, body.constant(np.array(1)), exclusive=1))


def turn(body: Body, x: str, tables: tuple[str, str], positions: str, size: int, turned: int, interleaved: bool) -> str:
    """The first `turned` of `size` elements of each head of `x[batch, rows, heads, size]`, turned by the angles of
    `positions[batch, rows]`."""
    half = turned // 2
    angles = []
    for table in tables:
        picked = body.add("Gather", table, positions)
        angles.append(body.add("Unsqueeze", picked, body.integers(2)))
    cosine, sine = angles
    rest = []
    if turned < size:
        x, *rest = body.several("Split", [x, body.integers(turned, size - turned)], 2, axis=3)
    if interleaved:
        pairs = body.add("Reshape", x, body.integers(0, 0, 0, half, 2))
        parts = body.several("Split", [pairs, body.integers(1, 1)], 2, axis=4)
        a, b = (body.add("Squeeze", p, body.integers(4)) for p in parts)
    else:
        a, b = body.several("Split", [x, body.integers(half, half)], 2, axis=3)
    first = body.add("Sub", body.add("Mul", a, cosine), body.add("Mul", b, sine))
    second = body.add("Add", body.add("Mul", a, sine), body.add("Mul", b, cosine))
    if interleaved:
        apart = [body.add("Unsqueeze", v, body.integers(4)) for v in (first, second)]
        both = body.add("Reshape", body.add("Concat", *apart, axis=4), body.integers(0, 0, 0, turned))
        return body.add("Concat", both, *rest, axis=3) if rest else both
    return body.add("Concat", first, second, *rest, axis=3)
