"""Products of 8-bit integers two at a time, where the machine (x86) has an instruction for it (`dot_pairs`).

Operands are packed: an i32 holds the codes of two channels (of two columns of a matrix), less their zero points, so
one step of the reduction does two products, exactly, at the price of one and an addition. Weights are packed here.

`MatMulInteger`, `ConvInteger`, `QLinearMatMul` and `QLinearConv` give the same bits. A `Conv` between a
`DequantizeLinear` and weights that are dequantised constants is computed in integers and scaled once at the end: closer
to the exact value than the graph's own f32 sums, but not the same bits, hence a pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Codes, Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.poly.dtypes import DType, f32, i32
from polyc.poly.target import Target

LEAST_REUSE = 16  # products that each packed element must take part in
PLAIN, QUANTISED = ("MatMulInteger", "ConvInteger"), ("QLinearMatMul", "QLinearConv")
LARGEST_CODE = 255  # of an 8-bit integer less its zero point


Made = Callable[["_Maker", Node], "list[Node] | None"]


def use_integer_pairs(graph: Graph, target: Target | None) -> dict[str, int]:
    """Replace integer products with constant weights; how many."""
    return {"products": _replace(graph, target, _integer_product)}


def use_quantised_convolutions(graph: Graph, target: Target | None) -> dict[str, int]:
    """Replace convolutions of dequantised codes by dequantised constant codes; how many."""
    return {"convolutions": _replace(graph, target, _dequantised_convolution)}


def _replace(graph: Graph, target: Target | None, made_of: Made) -> int:
    if not isinstance(target, Target) or target.isa != "x86-64":
        return 0
    maker = _Maker(graph)
    nodes: list[Node] = []
    count = 0
    for node in graph.nodes:
        if id(node) in maker.absorbed:
            continue
        made = made_of(maker, node)
        count += made is not None
        nodes += [node] if made is None else made
    graph.nodes = nodes
    return count


class _Maker:
    """Nodes in place of others; `made` says what makes a tensor."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = {o: n for n in graph.nodes for o in n.writes()}
        self.packed: dict[tuple[str, str, int], str] = {}
        self.consumers = graph.consumers()
        self.absorbed: set[int] = set()  # nodes whose work others do

    def constant(self, stem: str, value: np.ndarray, dtype: DType) -> str:
        name = self.graph.fresh(stem)
        self.graph.tensors[name] = Tensor(name, dtype, value.shape, np.ascontiguousarray(value, dtype.np))
        return name

    def tensor(self, stem: str, dtype: DType, shape: Any) -> str:
        name = self.graph.fresh(stem)
        self.graph.tensors[name] = Tensor(name, dtype, shape)
        return name

    def pack(self, node: Node, x: str, zero: str, axis: int) -> tuple[str, list[Node]]:
        """The tensor `x` in pairs along `axis`, and the node that packs it unless there is one already."""
        shift = self.graph.constant(zero)
        zero = "" if shift is not None and not shift.any() else zero
        key = (x, zero, axis)
        if key in self.packed:
            return self.packed[key], []
        shape = self.graph.tensors[x].shape or ()
        name = self.tensor(f"{x}.pairs", i32, (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :]))
        self.packed[key] = name
        return name, [
            Node(f"{node.name}.pairs", "PackPairs", [x, zero] if zero else [x], [name], {"axis": axis}, DOMAIN)
        ]


def packed_weights(whole: np.ndarray, axis: int) -> np.ndarray | None:
    """Integers of even size along `axis` in pairs; None when sums of products could pass i32."""
    summed = tuple(range(1, whole.ndim)) if axis else (0,)
    if LARGEST_CODE * int(np.abs(whole.astype(np.int64)).sum(summed).max(initial=0)) >= 1 << 31:
        return None
    low, high = (whole.take(range(k, whole.shape[axis], 2), axis).astype(np.int32) for k in (0, 1))
    return (low & 0xFFFF) | (high << 16)


def _fits(graph: Graph, x: str, whole: np.ndarray, axis: int, reuse: int) -> bool:
    tensor = graph.tensors[x]
    if tensor.dtype is None or not tensor.static or not tensor.dtype.is_int or tensor.dtype.bits != 8:
        return False
    size = (tensor.shape or ())[axis]
    return isinstance(size, int) and size % 2 == 0 and size > 0 and reuse >= LEAST_REUSE and whole.size > 0


def _integer_product(maker: _Maker, node: Node) -> list[Node] | None:
    if node.kind not in PLAIN + QUANTISED:
        return None
    graph, convolution, plain = maker.graph, "Conv" in node.op_type, node.kind in PLAIN
    inputs = [*node.inputs, *[""] * (9 - len(node.inputs))]
    x, w, zero, shift = (inputs[k] for k in ((0, 1, 2, 3) if plain else (0, 3, 2, 5)))
    if not plain and any(graph.tensors[inputs[k]].size != 1 for k in (1, 6)):
        return None
    codes, shifts = graph.constant(w), graph.constant(shift)
    if codes is None or (shift and shifts is None) or (zero and graph.tensors[zero].size != 1):
        return None
    if node.attrs.get("group", 1) != 1 or codes.ndim < 3 if convolution else codes.ndim != 2:
        return None
    whole = codes.astype(np.int32)
    if shifts is not None:
        whole = whole - shifts.astype(np.int32).reshape(-1, *[1] * (codes.ndim - 1 if convolution else 0))
    axis = 1 if convolution else len(graph.tensors[x].shape or ()) - 1
    reuse = codes.shape[0] * prod(codes.shape[2:]) if convolution else codes.shape[1]
    pairs = packed_weights(whole, 1 if convolution else 0) if _fits(graph, x, whole, axis, reuse) else None
    if pairs is None:
        return None
    packed, nodes = maker.pack(node, x, zero, axis)
    weights = maker.constant(f"{w} pairs", pairs, i32)
    operator = "PairConv" if convolution else "PairMatMul"
    if plain:
        return [*nodes, Node(node.name, operator, [packed, weights], list(node.outputs), dict(node.attrs), DOMAIN)]
    sums = maker.tensor(f"{node.outputs[0]}.sums", i32, graph.tensors[node.outputs[0]].shape)
    added = [inputs[8]] if inputs[8] else []
    return [
        *nodes,
        Node(node.name, operator, [packed, weights, *added], [sums], dict(node.attrs), DOMAIN),
        Node(node.name, "Requantize", [sums, *(inputs[k] for k in (1, 4, 6, 7) if inputs[k])], list(node.outputs),
             {"axis": 1 if convolution else -1}, DOMAIN),
    ]  # fmt: skip


def _dequantised_convolution(maker: _Maker, node: Node) -> list[Node] | None:
    if node.kind != "Conv":  # others may have no inputs
        return None
    graph = maker.graph
    codes = graph.tensors[node.inputs[1]].codes
    source = maker.made.get(node.inputs[0])
    if codes is None or source is None or source.kind != "DequantizeLinear" or node.attrs.get("group", 1) != 1:
        return None
    x, step, zero = [*source.inputs, ""][:3]
    factor, bias = graph.constant(step), _bias(graph, node)
    if factor is None or factor.size != 1 or bias is None or (zero and graph.constant(zero) is None):
        return None
    whole, out = codes.whole(), graph.tensors[node.outputs[0]]
    if not out.static or out.dtype != f32 or not _per_filter(codes):
        return None
    reuse = whole.shape[0] * prod(whole.shape[2:])
    pairs = packed_weights(whole, 1) if _fits(graph, x, whole, 1, reuse) else None
    if pairs is None:
        return None
    packed, nodes = maker.pack(node, x, zero, 1)
    weights = maker.constant(f"{node.inputs[1]} pairs", pairs, i32)
    (result,), column = node.outputs, (-1, *[1] * (whole.ndim - 2))
    quantised = _quantised(maker, result)
    if quantised is not None:
        sums = maker.tensor(f"{result}.sums", i32, out.shape)
        return [
            *nodes,
            Node(node.name, "PairConv", [packed, weights], [sums], dict(node.attrs), DOMAIN),
            _requantised(maker, quantised, sums, (factor * codes.scale).reshape(column), bias.reshape(column)),
        ]
    sums, real = (maker.tensor(f"{result}.{what}", kind, out.shape) for what, kind in (("sums", i32), ("real", f32)))
    scaled = maker.tensor(f"{result}.scaled", f32, out.shape) if bias.size else result
    scale = maker.constant(f"{result}.scale", (factor * codes.scale).reshape(column), f32)
    nodes += [
        Node(node.name, "PairConv", [packed, weights], [sums], dict(node.attrs), DOMAIN),
        Node(node.name, "Cast", [sums], [real], {"to": elem_type_of(f32)}),
        Node(node.name, "Mul", [real, scale], [scaled], {}),
    ]
    if bias.size:
        shift = maker.constant(f"{result}.bias", bias.reshape(column), f32)
        nodes.append(Node(node.name, "Add", [scaled, shift], [result], {}))
    return nodes


def _quantised(maker: _Maker, result: str) -> Node | None:
    """The node that quantises `result` by one constant scale, if nothing else reads it."""
    graph, readers = maker.graph, maker.consumers.get(result, [])
    if len(readers) != 1 or result in graph.outputs or readers[0].kind != "QuantizeLinear":
        return None
    step, zero = [*readers[0].inputs, ""][1:3]
    scale, shift = graph.constant(step), graph.constant(zero) if zero else np.zeros(1)
    kind = graph.tensors[readers[0].outputs[0]].dtype
    if scale is None or scale.size != 1 or shift is None or kind is None:
        return None
    return readers[0] if kind.is_int and kind.bits <= 16 else None


def _requantised(maker: _Maker, node: Node, sums: str, scale: np.ndarray, bias: np.ndarray) -> Node:
    """`node` on sums of products of codes that are worth `scale` each; what they and `bias` are in steps is known."""
    graph, (result,) = maker.graph, node.outputs
    step, kind = graph.constant(node.inputs[1]), graph.tensors[result].dtype
    assert step is not None and kind is not None
    maker.absorbed.add(id(node))
    per_step = scale.astype(np.float64) / step.item()
    shift = bias.astype(np.float64) / step.item() if bias.size else np.zeros_like(per_step)
    zero = node.inputs[2] if len(node.inputs) > 2 else ""
    operands = [
        maker.constant(f"{result}.factor", per_step, f32),
        maker.constant(f"{result}.offset", shift, f32),
        zero or maker.constant(f"{result}.zero", np.zeros(1), kind),
    ]
    return Node(node.name, "RequantizeSums", [sums, *operands], [result], {}, DOMAIN)


def _bias(graph: Graph, node: Node) -> np.ndarray | None:
    """The constant bias (empty: none), None when it is not constant."""
    given = node.inputs[2] if len(node.inputs) > 2 else ""
    return graph.constant(given) if given else np.zeros(0, np.float32)


def _per_filter(codes: Codes) -> bool:
    return codes.scale.size in (1, codes.integers.shape[0]) and (codes.scale.size == 1 or codes.axis == 0)
