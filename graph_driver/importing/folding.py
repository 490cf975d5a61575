"""What can be computed when the model is imported: results of constants and of shapes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polyc.graph_driver.communication import operators as communication
from polyc.graph_driver.graph.ir import Codes, Graph, Node, Tensor
from polyc.graph_driver.graph.limits import MAX_FOLD_BYTES, check_shape
from polyc.graph_driver.graph.provenance import note_results
from polyc.graph_driver.host.reference import HostNode
from polyc.graph_driver.host.same_everywhere import same_everywhere
from polyc.graph_driver.inference import contrib
from polyc.poly.dtypes import i64
from polyc.poly.errors import ModelError

NEVER_FOLDED = {
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"),
    *("If", "Loop", "Scan", "Dropout", "Optional", "SequenceMap"),
}


def folded(
    graph: Graph, node: Node, outputs: dict[str, Tensor], what: str, portable: bool = False
) -> list[Tensor] | None:
    """The outputs as constants when they can be known now, else None. `portable`: only where every machine would know
    the same bits."""
    if (node.op_type in NEVER_FOLDED and not node.domain) or node.domain in (contrib.DOMAIN, communication.DOMAIN):
        return None
    tensors = graph.tensors
    if node.op_type in ("Shape", "Size") and not node.domain and tensors[node.inputs[0]].shape is not None:
        shape = tensors[node.inputs[0]].shape or ()
        start, end = node.attrs.get("start", 0), node.attrs.get("end", len(shape))
        value = np.array(shape[start:end] if node.op_type == "Shape" else math.prod(shape), np.int64)
        return [Tensor(node.outputs[0], i64, value.shape, value)]
    if outputs and all(t.static and t.size == 0 for t in outputs.values()):
        return [zeros(t.name, t) for t in outputs.values()]
    values = [tensors[i].const for i in node.inputs if i]
    if node.captures or any(v is None for v in values):
        return None
    if sum(t.nbytes for t in outputs.values() if t.static) > MAX_FOLD_BYTES and node.op_type != "ConstantOfShape":
        return None
    if node.op_type == "ConstantOfShape":
        return [_filled(node, outputs[node.outputs[0]])]
    if portable and not same_everywhere(node, tensors | outputs):
        return None
    results = HostNode.of(node, graph.opsets, tensors)(values, {})
    present = list(node.writes())
    if len(results) != len(present) or not all(isinstance(r, (np.ndarray, np.generic)) for r in results):
        return None  # sequences and optionals stay on the host
    made = [_constant(outputs[o], np.asarray(r), what) for o, r in zip(present, results, strict=True)]
    if node.kind == "DequantizeLinear" and not node.attrs.get("block_size"):
        made = [replace(made[0], codes=_codes(node, values))]
    note_results(node, {i: tensors[i] for i in node.inputs if i}, {t.name: t for t in made})
    return made


def _codes(node: Node, values: Sequence[np.ndarray | None]) -> Codes:
    """What a dequantised constant is made from."""
    integers, scale, zero = [*values, None][:3]
    assert integers is not None and scale is not None
    return Codes(integers, zero, scale, int(node.attrs.get("axis", 1)) % max(1, integers.ndim))


def zeros(name: str, like: Tensor) -> Tensor:
    """A constant of zeros of the type and shape of `like`."""
    assert like.dtype is not None and like.shape is not None
    return Tensor(name, like.dtype, like.shape, np.zeros(like.shape, like.dtype.np))


def _filled(node: Node, tensor: Tensor) -> Tensor:
    """`ConstantOfShape` as a broadcast view: a model of only such weights stays small."""
    if not tensor.static or tensor.dtype is None:
        raise ModelError(f"{node.kind} '{node.name}': the shape is not known")
    fill = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(-1)
    if fill.size != 1:
        raise ModelError(f"{node.kind} '{node.name}': attribute value must have one element")
    value = np.broadcast_to(fill[0].astype(tensor.dtype.np), tensor.shape or ())
    return Tensor(tensor.name, tensor.dtype, tensor.shape, value)


def _constant(tensor: Tensor, value: np.ndarray, what: str) -> Tensor:
    if tensor.dtype is None:
        return Tensor(tensor.name, None, value.shape, value)
    if tensor.shape is not None and value.shape != tensor.shape:
        raise ModelError(f"{what}: result '{tensor.name}' is {list(value.shape)}, inferred {list(tensor.shape)}")
    check_shape(f"{what}: result '{tensor.name}'", value.shape, value.dtype.itemsize)
    array = np.ascontiguousarray(value.astype(tensor.dtype.np, copy=False)).reshape(value.shape)
    return Tensor(tensor.name, tensor.dtype, value.shape, array)
