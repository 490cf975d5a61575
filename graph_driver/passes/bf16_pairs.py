"""Products of bf16 two at a time, where the machine has an instruction for it (`vdpbf16ps`, `bfdot`).

Operands are packed: a 32-bit word holds the values of two channels (of two columns of a matrix); weights are packed
here. Sums are in f32, rounded to bf16 once, as without this pass. But the instructions order and round sums in ways
of their own and take denormal numbers as 0, hence not with `--exact`.
"""

from __future__ import annotations

from math import prod

import numpy as np

from polyc.emit.targets import own_instructions
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.poly.dtypes import DType, bf16, f32
from polyc.poly.target import Target

LEAST_REUSE = 16  # products that each packed element must take part in


def use_bf16_pairs(graph: Graph, target: Target | None) -> dict[str, int]:
    """Replace products of bf16 with constant weights; how many."""
    if not isinstance(target, Target) or "dot_bf16" not in own_instructions(target):
        return {}
    nodes: list[Node] = []
    packed: dict[tuple[str, int], str] = {}
    count = 0
    for node in graph.nodes:
        made = _replaced(graph, node, packed) if node.kind in ("MatMul", "Gemm", "Conv") else None
        count += made is not None
        nodes += [node] if made is None else made
    graph.nodes = nodes
    return {"products": count}


def _replaced(graph: Graph, node: Node, packed: dict[tuple[str, int], str]) -> list[Node] | None:
    x, w, bias = [*node.inputs, ""][:3]
    weights, image, out = graph.constant(w), graph.tensors[x], graph.tensors[node.outputs[0]]
    added = graph.constant(bias) if bias else np.zeros(0, bf16.np)
    if weights is None or added is None or image.dtype != bf16 or not image.static or not out.static:
        return None
    convolution = node.kind == "Conv"
    weights = _as_product(node, weights, len(image.shape or ()))
    if weights is None:
        return None
    axis = 1 if convolution else len(image.shape or ()) - 1
    size = (image.shape or ())[axis]
    reuse = prod(weights.shape) // weights.shape[1] if convolution else weights.shape[1]
    if not isinstance(size, int) or size % 2 or not size or reuse < LEAST_REUSE:
        return None
    nodes: list[Node] = []
    key = x, axis
    if key not in packed:
        shape = image.shape or ()
        packed[key] = _tensor(graph, f"{x}.pairs", f32, (*shape[:axis], size // 2, *shape[axis + 1 :]))
        nodes.append(Node(f"{node.name}.pairs", "PackBf16", [x], [packed[key]], {"axis": axis}, DOMAIN))
    operands = [packed[key], _constant(graph, f"{w} pairs", packed_words(weights, 1 if convolution else 0))]
    result, attrs = node.outputs[0], dict(node.attrs) if convolution else {}
    if convolution and added.size:
        operands.append(_constant(graph, f"{bias} f32", added.astype(np.float32)))
    sums = _tensor(graph, f"{result}.sums", f32, out.shape)
    nodes.append(Node(node.name, "Bf16Conv" if convolution else "Bf16MatMul", operands, [sums], attrs, DOMAIN))
    if not convolution and added.size:
        whole = _tensor(graph, f"{result}.whole", f32, out.shape)
        nodes.append(
            Node(node.name, "Add", [sums, _constant(graph, f"{bias} f32", added.astype(np.float32))], [whole], {})
        )
        sums = whole
    return [*nodes, Node(node.name, "Cast", [sums], [result], {"to": elem_type_of(bf16)})]


def _as_product(node: Node, weights: np.ndarray, rank: int) -> np.ndarray | None:
    """Filters, or a matrix `[k, n]`; None for what has no form in pairs."""
    if node.kind == "Conv":
        return weights if node.attrs.get("group", 1) == 1 and weights.size else None
    if weights.ndim != 2 or rank < 2 or not weights.size:
        return None
    if node.kind == "MatMul":
        return weights
    plain = node.attrs.get("alpha", 1.0) == node.attrs.get("beta", 1.0) == 1.0 and not node.attrs.get("transA", 0)
    return (weights.T if node.attrs.get("transB", 0) else weights) if plain else None


def packed_words(values: np.ndarray, axis: int) -> np.ndarray:
    """bf16 of even size along `axis` as f32 words of two, the first in the low half."""
    low, high = (values.take(range(k, values.shape[axis], 2), axis).view(np.uint16).astype(np.uint32) for k in (0, 1))
    return (low | high << np.uint32(16)).view(np.float32)


def _constant(graph: Graph, stem: str, value: np.ndarray) -> str:
    name = graph.fresh(stem)
    graph.tensors[name] = Tensor(name, f32, value.shape, np.ascontiguousarray(value))
    return name


def _tensor(graph: Graph, stem: str, dtype: DType, shape: tuple[object, ...] | None) -> str:
    name = graph.fresh(stem)
    graph.tensors[name] = Tensor(name, dtype, shape)
    return name
