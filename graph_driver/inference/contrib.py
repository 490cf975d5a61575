"""Operators of `com.microsoft` that onnx does not know: their types, and definitions by ONNX operators.

The meaning is ONNX Runtime's (its document ContribOperators.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from polyc.frontend_dsl.library.quantized_recurrent import packed_pairs
from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference import contrib_attention, contrib_language, contrib_narrow, contrib_quantised
from polyc.graph_driver.inference.classical import support_vectors, trees
from polyc.graph_driver.inference.contrib_body import Body, Definition
from polyc.poly.errors import ModelError
from polyc.poly.words import between, counted

DOMAIN = "com.microsoft"


def definition(
    node: onnx.NodeProto,
    attrs: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    opset: int,
    fresh: Callable[[str], str],
    what: str,
    declared: Mapping[str, Sequence[int | str]],
) -> onnx.GraphProto | None:
    """Nodes and constants that compute what `node` does; None when it has no such definition, or needs none.
    `declared` are the shapes that the model gives its inputs and outputs.

    Raises:
        ModelError: a form of the operator that is not defined here.
    """
    if node.op_type == "DynamicQuantizeLSTM":
        _check_form(node, what)
        return _prepared_lstm(node, tensors, fresh)
    make = _DEFINITIONS.get(node.op_type)
    if make is None:
        return None
    _check_form(node, what)
    if not all(tensors[i].static for i in node.input if i):
        raise ModelError(f"{what}: the shapes of its inputs must be known when the model is compiled")
    body = Body(node.output, opset, fresh, declared)
    make(body, node, attrs, tensors)
    return body.graph if body.graph.node else None


def _fused_matmul(body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """`alpha * A' B'`, each operand with its last two dimensions exchanged when asked."""
    if attrs.get("transBatchA", 0) or attrs.get("transBatchB", 0):
        raise ModelError("FusedMatMul with transBatchA or transBatchB is not supported")
    operands = []
    for name, flag in zip(node.input, ("transA", "transB"), strict=True):
        rank = len(tensors[name].shape or ())
        if attrs.get(flag, 0) and rank > 1:
            name = body.add("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])
        operands.append(name)
    alpha, dtype = float(attrs.get("alpha", 1.0)), tensors[node.input[0]].dtype
    assert dtype is not None
    if alpha == 1.0:
        body.add("MatMul", *operands, to=body.outputs[0])
    else:
        product = body.add("MatMul", *operands)
        body.add("Mul", product, body.constant(np.array(alpha, dtype.np)), to=body.outputs[0])


def _skip_layer_norm(body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Layer normalisation of `input + skip + bias`, whose sum is the fourth output."""
    inputs = [*node.input, *[""] * (5 - len(node.input))]
    outputs = [*node.output, *[""] * (4 - len(node.output))]
    if outputs[1] or outputs[2]:
        raise ModelError("SkipLayerNormalization with mean or deviation as outputs is not supported")
    total = body.add("Add", inputs[0], inputs[1], to="" if inputs[4] else outputs[3])
    if inputs[4]:
        total = body.add("Add", total, inputs[4], to=outputs[3])
    epsilon = float(attrs.get("epsilon", 1e-12))
    operands = [total, inputs[2], *([inputs[3]] if inputs[3] else [])]
    if body.opset >= 17:
        body.add("LayerNormalization", *operands, to=outputs[0], axis=-1, epsilon=epsilon)
        return
    dtype = tensors[node.input[0]].dtype
    assert dtype is not None
    centred = body.add("Sub", total, body.add("ReduceMean", total, axes=[-1]))
    variance = body.add("ReduceMean", body.add("Mul", centred, centred), axes=[-1])
    deviation = body.add("Sqrt", body.add("Add", variance, body.constant(np.array(epsilon, dtype.np))))
    scaled = body.add("Mul", body.add("Div", centred, deviation), inputs[2], to="" if inputs[3] else outputs[0])
    if inputs[3]:
        body.add("Add", scaled, inputs[3], to=outputs[0])


def _fast_gelu(body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """The tanh approximation of GELU, after a bias."""
    x, dtype = node.input[0], tensors[node.input[0]].dtype
    assert dtype is not None
    if len(node.input) > 1 and node.input[1]:
        x = body.add("Add", x, node.input[1])
    if body.opset >= 20:
        body.add("Gelu", x, to=body.outputs[0], approximate="tanh")
        return

    def number(value: float) -> str:
        return body.constant(np.array(value, dtype.np))

    cubic = body.add("Mul", body.add("Mul", x, x), body.add("Mul", x, number(0.044715)))
    inner = body.add("Mul", body.add("Add", x, cubic), number(0.7978845608028654))
    factor = body.add("Add", body.add("Tanh", inner), number(1.0))
    body.add("Mul", body.add("Mul", x, number(0.5)), factor, to=body.outputs[0])


def _prepared_lstm(
    node: onnx.NodeProto, tensors: Mapping[str, Tensor], fresh: Callable[[str], str]
) -> onnx.GraphProto | None:
    """The node with the codes of constant weights as pairs of i8, and what is to be added to each (`packed_pairs`).

    None when the weights are not constant, prepared already, or of odd sizes.
    """
    names = [*node.input, *[""] * (12 - len(node.input))]
    part = onnx.GraphProto()

    def constant(position: int, what: str, value: np.ndarray) -> None:
        names[position] = fresh(f"{node.input[1 if position in (1, 9) else 2]} {what}")
        part.initializer.append(numpy_helper.from_array(value, names[position]))

    for weight, zero in ((1, 9), (2, 11)):
        value = tensors[names[weight]].const
        shift = tensors[names[zero]].const if names[zero] else np.zeros(0 if value is None else len(value), np.int8)
        if value is None or shift is None or value.ndim != 3 or value.dtype.itemsize > 1 or value.shape[1] % 2:
            return None
        middle = 0 if value.dtype == np.int8 else 128
        rest = middle - shift.astype(np.int32).reshape(len(value), -1)
        constant(weight, "codes", packed_pairs(value.astype(np.int32) - middle))
        if rest.any():
            constant(zero, "shifts", rest)
        else:
            names[zero] = ""
    made = part.node.add()
    made.CopyFrom(node)
    del made.input[:]
    made.input.extend(names)
    return part


_INT, _FLOAT, _STRING = (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT, onnx.AttributeProto.STRING)
_TYPES = {
    "alpha": _FLOAT, "transA": _INT, "transB": _INT, "transBatchA": _INT, "transBatchB": _INT, "epsilon": _FLOAT,
    "clip": _FLOAT, "direction": _STRING, "hidden_size": _INT, "input_forget": _INT,
    "activations": onnx.AttributeProto.STRINGS, "activation_alpha": onnx.AttributeProto.FLOATS,
    "activation_beta": onnx.AttributeProto.FLOATS, **dict.fromkeys(contrib_narrow.INTEGERS, _INT),
    **dict.fromkeys((*contrib_language.INTEGERS, *contrib_quantised.INTEGERS), _INT),
    "scale": _FLOAT, "softcap": _FLOAT, **trees.TYPES, "metric": _STRING,
}  # fmt: skip
# Operator -> number of inputs that must be there, of all inputs, of all outputs.
_FORMS = {
    "FusedMatMul": (2, 2, 1), "SkipLayerNormalization": (3, 5, 4), "FastGelu": (1, 2, 1),
    "DynamicQuantizeLSTM": (3, 12, 3), "MatMulNBits": (3, 6, 1), "GatherBlockQuantized": (3, 4, 1),
    "SimplifiedLayerNormalization": (2, 2, 2), "SkipSimplifiedLayerNormalization": (3, 4, 4),
    "RotaryEmbedding": (4, 4, 1), "AppendToCache": (3, 4, 1), "PutRows": (3, 3, 1), "GroupQueryAttention": (7, 17, 4),
    "CDist": (2, 2, 1), support_vectors.DISTANCES: (2, 2, 1), support_vectors.COUPLED: (1, 1, 1),
    trees.TREE_SCORES: (6, 6, 1),
    **contrib_quantised.FORMS,
}  # fmt: skip


# Inputs before the last one that must be there, and need not.
_ABSENT = {("GroupQueryAttention", k) for k in (1, 2, 3, 4)} | contrib_quantised.ABSENT
PLAIN = ("SimplifiedLayerNormalization",)  # ONNX Runtime has it among ONNX's own


def contributed(node: onnx.NodeProto) -> bool:
    """Whether an operator is one of ONNX Runtime's, wherever that keeps it."""
    return node.domain == DOMAIN or (node.domain in ("", "ai.onnx") and node.op_type in PLAIN)


def _check_form(node: onnx.NodeProto, what: str) -> None:
    """Raise `ModelError` when inputs or outputs are missing or too many, or an attribute has the wrong type."""
    for a in node.attribute:
        if a.name in _TYPES and a.type != _TYPES[a.name]:
            raise ModelError(f"{what}: attribute {a.name} has the wrong type")
    required, inputs, outputs = _FORMS[node.op_type]
    needed = [i for k, i in enumerate(node.input[:required]) if (node.op_type, k) not in _ABSENT]
    if not required <= len(node.input) <= inputs or not all(needed):
        raise ModelError(f"{what}: {counted(len(node.input), 'input')}, expected {between(required, inputs)}")
    if not 1 <= len(node.output) <= outputs or not node.output[0]:
        raise ModelError(f"{what}: {counted(len(node.output), 'output')}, expected the first and at most {outputs}")


_DEFINITIONS: dict[str, Definition] = {
    "FusedMatMul": _fused_matmul,
    "SkipLayerNormalization": _skip_layer_norm,
    "FastGelu": _fast_gelu,
    "MatMulNBits": contrib_narrow.without_bias,
    "CDist": support_vectors.of_rows,
    "SimplifiedLayerNormalization": contrib_language.simplified_norm,
    "SkipSimplifiedLayerNormalization": contrib_language.skip_simplified_norm,
    "RotaryEmbedding": contrib_language.rotary,
    "GroupQueryAttention": contrib_attention.grouped_attention,
    **contrib_quantised.DEFINITIONS,
}


def infer(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The output tensors of an operator with loops of its own. Raises `ModelError` for one unknown here."""
    rule = _INFERENCE.get(node.op_type)
    if rule is None:
        known = ", ".join(sorted({*_DEFINITIONS, *_INFERENCE}))
        raise ModelError(f"{what}: unknown operator {node.op_type} in domain '{DOMAIN}' (known: {known})")
    _check_form(node, what)
    return rule(node, tensors, what)


def _quantised_lstm(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    x, recurrent = tensors[node.input[0]], tensors[node.input[2]]
    if not x.static or recurrent.shape is None:
        raise ModelError(f"{what}: the shapes of its inputs must be known when the model is compiled")
    if len(x.shape or ()) != 3 or len(recurrent.shape) != 3:
        raise ModelError(f"{what}: its sequence and its weights must have rank 3")
    steps, batch, _ = x.shape or ()
    prepared = recurrent.dtype is not None and recurrent.dtype.bits > 8
    directions, hidden = recurrent.shape[0], recurrent.shape[1] * (2 if prepared else 1)
    shapes = [(steps, directions, batch, hidden), (directions, batch, hidden), (directions, batch, hidden)]
    return {o: Tensor(o, x.dtype, shape) for o, shape in zip(node.output, shapes, strict=False) if o}


Inference = Callable[[onnx.NodeProto, Mapping[str, Tensor], str], dict[str, Tensor]]
_INFERENCE: dict[str, Inference] = {
    "DynamicQuantizeLSTM": _quantised_lstm,
    "MatMulNBits": contrib_narrow.product,
    "GatherBlockQuantized": contrib_narrow.gathered,
    "AppendToCache": contrib_attention.appended,
    "PutRows": contrib_attention.put,
    trees.TREE_SCORES: trees.tree_scores,
    support_vectors.DISTANCES: support_vectors.distances,
    support_vectors.COUPLED: support_vectors.coupled,
}
