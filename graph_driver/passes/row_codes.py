"""Products of f32 operands with constant weights as products of codes of 8 bits (`--precision int8`).

Weights have a step for each channel of the result. Each row of a product's left operand has a step of its own, which a
run finds: its largest magnitude / 127; a convolution's image has one step. A code of an operand is 128 + x / step,
rounded to even, in an unsigned byte. Sums of codes are exact in 32 bits and scaled by both steps afterwards. An
operand with an infinity or a NaN in a row makes that row of the result NaN.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.passes.byte_nodes import Making
from polyc.graph_driver.passes.naming import is_named
from polyc.poly.dtypes import f32, i8, i32, i64, u8
from polyc.poly.records import dataclass

LARGEST, MIDDLE = 127, 128
LEAST = float(np.finfo(np.float32).tiny)  # of a step: a row of zeros has one, too


def weight_codes(weights: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """i8 codes around 0 and their steps, one for each channel along `axis`."""
    others = tuple(k for k in range(weights.ndim) if k != axis)
    most = np.abs(weights).max(others)
    steps = np.where(most > 0, most / LARGEST, 1).astype(np.float32)
    shape = [1] * weights.ndim
    shape[axis] = -1
    return np.clip(np.rint(weights / steps.reshape(shape)), -LARGEST, LARGEST).astype(np.int8), steps


@dataclass(frozen=True)
class Weighed:
    """A node that multiplies `x` with constant weights: a convolution, or a product with a matrix `[inner, columns]`;
    `bias` is the name of what is added (empty: nothing)."""

    node: Node
    x: str
    weights: np.ndarray
    bias: str

    @property
    def is_image(self) -> bool:
        """Whether it is a convolution."""
        return self.node.op_type == "Conv"


def weighed(graph: Graph) -> list[Weighed]:
    """The products and convolutions of f32 that may be products of codes: their constant weights are finite."""
    return [w for w in multiplied(graph) if np.isfinite(w.weights).all()]


def multiplied(graph: Graph) -> list[Weighed]:
    """The products and dense convolutions of f32 with constant f32 weights."""
    return [w for w in (_weighed(graph, n) for n in graph.nodes) if w is not None]


def _weighed(graph: Graph, node: Node) -> Weighed | None:
    if node.domain or node.op_type not in ("MatMul", "Gemm", "Conv"):
        return None
    x, attrs = graph.tensors[node.inputs[0]], node.attrs
    weights = graph.constant(node.inputs[1])
    if weights is None or x.const is not None or x.dtype != f32 or weights.dtype != np.float32 or not x.shape:
        return None
    if graph.tensors[node.inputs[1]].codes is not None or not weights.size:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if node.op_type == "Conv":
        return Weighed(node, x.name, weights, bias) if attrs.get("group", 1) == 1 else None
    if weights.ndim != 2 or attrs.get("transA", 0) or attrs.get("alpha", 1) != 1 or attrs.get("beta", 1) != 1:
        return None
    return Weighed(node, x.name, weights.T if attrs.get("transB", 0) else weights, bias)


def use_row_codes(graph: Graph, keep: Collection[str] = ()) -> dict[str, int]:
    """Replace what `weighed` finds by products of codes, but nodes in `keep` (operators, nodes or their results); how
    many."""
    found = {id(w.node): w for w in weighed(graph) if not is_named(w.node, keep)}
    return {"products": _RowCodes(graph).rewrite(found)}


class _RowCodes(Making):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.codes: dict[tuple[str, bool], tuple[str, str]] = {}

    def rewrite(self, found: dict[int, Weighed]) -> int:
        """The nodes in their new form."""
        for node in self.graph.nodes:
            if id(node) in found:
                self.product(found[id(node)])
            else:
                self.nodes.append(node)
        self.graph.nodes = self.nodes
        return len(found)

    def coded(self, w: Weighed) -> tuple[str, str]:
        """Codes of the operand and their steps, made once for all that read it."""
        if (w.x, w.is_image) in self.codes:
            return self.codes[w.x, w.is_image]
        node, x = w.node, w.x
        shape = self.graph.tensors[x].shape or ()
        rows = tuple(1 for _ in shape) if w.is_image else (*shape[:-1], 1)
        axes = [*range(len(shape))] if w.is_image else [len(shape) - 1]

        def made(what: str, operator: str, inputs: list[str], size: tuple[int, ...]) -> str:
            return self.add(node, operator, inputs, self.tensor(f"{x}.{what}", f32, size))

        def number(what: str, value: float) -> str:
            return self.constant(f"{x}.{what}", np.float32(value), f32)

        size = made("size", "Abs", [x], shape)
        most = self.reduce(node, "ReduceMax", size, axes, self.tensor(f"{x}.most", f32, rows))
        step = made("share", "Mul", [most, number("levels", 1 / LARGEST)], rows)
        step = made("least", "Add", [step, number("tiny", LEAST)], rows)
        # A largest element may be found beside a NaN: the sum of x * 0 is 0 where all are finite, else NaN.
        odd = made("nought", "Mul", [x, number("zero", 0)], shape)
        odd = self.reduce(node, "ReduceSum", odd, axes, self.tensor(f"{x}.odd", f32, rows))
        step = made("step", "Add", [step, odd], rows)
        whole = made("whole", "Round", [made("steps", "Div", [x, step], shape)], shape)
        above = made("above", "Add", [whole, number("middle", MIDDLE)], shape)
        codes = self.add(node, "Cast", [above], self.tensor(f"{x}.codes", u8, shape), to=elem_type_of(u8))
        self.codes[x, w.is_image] = codes, step
        return codes, step

    def product(self, w: Weighed) -> None:
        """Integer sums, scaled by the steps of rows and columns, and the bias."""
        node, (result,) = w.node, w.node.outputs
        codes, step = self.coded(w)
        stored, steps = weight_codes(w.weights, 0 if w.is_image else 1)
        shape = self.graph.tensors[result].shape or ()
        operands = [codes, self.constant(f"{result}.weights", stored, i8), self.constant(f"{result}.zero", MIDDLE, u8)]
        kind, attrs = ("ConvInteger", node.attrs) if w.is_image else ("MatMulInteger", {})
        sums = self.add(node, kind, operands, self.tensor(f"{result}.sums", i32, shape), **attrs)
        real = self.add(node, "Cast", [sums], self.tensor(f"{result}.real", f32, shape), to=elem_type_of(f32))
        across = (1, -1, *[1] * (w.weights.ndim - 2)) if w.is_image else (-1,)
        worth = self.constant(f"{result}.worth", steps.reshape(across), f32)
        scaled = self.add(node, "Mul", [real, worth], self.tensor(f"{result}.scaled", f32, shape))
        if not w.bias:
            self.add(node, "Mul", [scaled, step], result)
            return
        product = self.add(node, "Mul", [scaled, step], self.tensor(f"{result}.product", f32, shape))
        bias = w.bias
        if w.is_image:
            value = self.graph.constant(bias)
            column = (1, -1, *[1] * (w.weights.ndim - 2))
            if value is not None:
                bias = self.constant(f"{result}.bias", value.reshape(column), f32)
            else:
                target = self.constant(f"{result}.column", np.array(column), i64)
                size = tuple(n if k == 1 else 1 for k, n in enumerate(shape))
                bias = self.add(node, "Reshape", [bias, target], self.tensor(f"{result}.bias", f32, size))
        self.add(node, "Add", [product, bias], result)
