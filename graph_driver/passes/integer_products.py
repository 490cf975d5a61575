"""Products of 8-bit integers computed in f32, where that is exact.

A sum of products of integers is exact in f32, in any order, as long as no partial sum can reach 2^24. With
constant weights that is decided at compile time: 255 times the sum of a column's magnitudes bounds all of
them. The product is then an ordinary `MatMul` or `Conv`, with its panels and register tiles; results are
the same bits. It runs after the choice of implementations, since Winograd's method would round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.poly.dtypes import f32, i32

LARGEST_CODE = 255  # of an 8-bit integer less its zero point
EXACT = 1 << 24


def compute_integer_products_in_f32(graph: Graph) -> dict[str, int]:
    """Replace `MatMulInteger` and `ConvInteger` with constant weights; how many."""
    changed, nodes = 0, []
    for node in graph.nodes:
        weights = (
            _weights(graph, node) if node.op_type in ("MatMulInteger", "ConvInteger") and not node.domain else None
        )
        if weights is None:
            nodes.append(node)
            continue
        nodes += _replacement(graph, node, weights)
        changed += 1
    graph.nodes = nodes
    return {"products": changed}


def _weights(graph: Graph, node: Node) -> np.ndarray | None:
    """The weights less their zero points as f32; None where f32 would not be exact or little is known."""
    inputs = [*node.inputs, *[""] * (4 - len(node.inputs))]
    codes, shift = graph.constant(inputs[1]), graph.constant(inputs[3])
    x, zero = graph.tensors[inputs[0]], inputs[2]
    if codes is None or (inputs[3] and shift is None) or not x.static or codes.ndim < 2:
        return None
    if zero and graph.tensors[zero].size != 1:
        return None
    whole = codes.astype(np.int32)
    if shift is not None and shift.size > 1:
        convolution = node.op_type == "ConvInteger"
        if not convolution and codes.ndim != 2:
            return None
        whole -= shift.astype(np.int32).reshape(-1, *[1] * (codes.ndim - 1)) if convolution else shift.astype(np.int32)
    elif shift is not None:
        whole -= shift.astype(np.int32).reshape(())
    summed = tuple(range(1, codes.ndim)) if node.op_type == "ConvInteger" else (codes.ndim - 2,)
    largest = LARGEST_CODE * int(np.abs(whole).astype(np.int64).sum(summed).max(initial=0))
    return whole.astype(np.float32) if largest < EXACT else None


def _replacement(graph: Graph, node: Node, weights: np.ndarray) -> list[Node]:
    x, zero = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else ""
    (result,) = node.outputs
    shape = graph.tensors[x].shape
    made: list[Node] = []
    to_f32 = {"to": elem_type_of(f32)}

    def add(op_type: str, inputs: Sequence[str], attrs: dict[str, Any], size: Any, to: str = "") -> str:
        name = to or graph.fresh(f"{result}.{op_type.lower()}")
        if not to:
            graph.tensors[name] = Tensor(name, f32, size)
        made.append(Node(node.name, op_type, list(inputs), [name], attrs))
        return name

    centred = add("Cast", [x], to_f32, shape)
    if zero:
        shift = graph.constant(zero)
        if shift is None or shift.any():
            point = add("Cast", [zero], to_f32, graph.tensors[zero].shape)
            centred = add("Sub", [centred, point], {}, shape)
    name = graph.fresh(f"{node.inputs[1]} centred")
    graph.tensors[name] = Tensor(name, f32, weights.shape, weights)
    operator = "Conv" if node.op_type == "ConvInteger" else "MatMul"
    product = add(operator, [centred, name], dict(node.attrs), graph.tensors[result].shape)
    add("Cast", [product], {"to": elem_type_of(i32)}, None, to=result)
    return made
