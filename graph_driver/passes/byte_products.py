"""Matrix products of 8-bit codes four at a time (`dot_bytes`): rows of codes are rows of words as they lie. Where a
machine has no such instruction they are widened to 16 bits and multiplied two at a time (`dot_pairs`).

`MatMulInteger` (with a zero point that a run decides, too), `QLinearMatMul`, and `MatMul` or `Gemm` of dequantised
codes, each with constant weights that are signed bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.operators.byte_images import SIGNED
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.graph_driver.passes.byte_nodes import Making
from polyc.graph_driver.passes.byte_weights import BYTES, ByteProduct, codes_in_words, product_of, words
from polyc.poly.dtypes import f32, i8, i32
from polyc.poly.target import Target

LEAST_COLUMNS = 16  # products that each element of a row must take part in


def use_byte_products(graph: Graph, target: Target | None) -> dict[str, int]:
    """Replace products of codes with constant weights on machines that multiply bytes; how many."""
    codes = codes_in_words(target)
    return {"products": _Products(graph, codes).rewrite()} if codes else {}


class _Products(Making):
    def rewrite(self) -> int:
        for node in self.graph.nodes:
            if id(node) not in self.absorbed and not self.product(node):
                self.nodes.append(node)
        if self.count:
            self.graph.nodes = self.nodes
        return self.count

    def product(self, node: Node) -> bool:
        found = None if "Conv" in node.op_type else product_of(self.graph, node, self.made, self.per_word)
        if found is None or node.attrs.get("transA", 0) or found.weights.ndim != 2:
            return False
        codes, columns = self.graph.tensors[found.codes], len(found.weights)
        rows = codes.shape or ()
        if columns < LEAST_COLUMNS or not rows or not isinstance(rows[-1], int) or rows[-1] % self.per_word:
            return False
        if codes.dtype == i8:  # bytes of words count from 0, codes that are widened keep their sign
            if self.per_word == BYTES:
                return False
            found = replace(found, zero=found.zero - (0 if found.moving else SIGNED))
        start = found.start()
        if start is None or len(self.graph.tensors[found.moving].shape or () if found.moving else ()) > 1:
            return False
        self.count += 1
        shape = (*rows[:-1], columns)
        sums = self.tensor(f"{found.result}.sums", i32, shape)
        operands = [
            self.words(node, found.codes),
            self.constant(f"{node.inputs[1]} bytes", words(found.weights.T, self.per_word), i32),
            self.start(node, found) if found.moving else self.constant(f"{found.result}.start", start, i32),
        ]
        if found.scale is None and node.op_type == "MatMulInteger":
            self.add(node, "ByteMatMul", operands, found.result, DOMAIN, codes=self.per_word)
            return True
        self.add(node, "ByteMatMul", operands, sums, DOMAIN, codes=self.per_word)
        if found.scale is None:
            self._linear(node, found, sums)
        else:
            self._scaled(node, found, found.scale, sums)
        return True

    def start(self, node: Node, found: ByteProduct) -> str:
        """Start values of sums of codes whose zero point a run decides."""
        flat = self.constant(f"{found.result}.sums", -found.weights.sum(1), i32)
        shape = self.graph.tensors[found.moving].shape or ()
        zero = self.tensor(f"{found.result}.zero", i32, shape)
        self.add(node, "Cast", [found.moving], zero, to=elem_type_of(i32))
        return self.add(node, "Mul", [zero, flat], self.tensor(f"{found.result}.start", i32, (len(found.weights),)))

    def _scaled(self, node: Node, found: ByteProduct, scale: np.ndarray, sums: str) -> None:
        """Codes where the product is quantised next and one rounding does it, else f32."""
        reader, real_bias = self.quantiser(found.result), bool(found.bias.size) and not found.whole_bias
        step = None if reader is None else self.graph.constant(reader.inputs[1])
        if reader is not None and step is not None and not real_bias:
            factor = (scale.astype(np.float64) / step.item()).astype(np.float32)
            if found.rounded_once(factor):
                self.absorbed.add(id(reader))
                (result,) = reader.outputs
                operands = [sums, self.constant(f"{result}.factor", factor, f32), self.plain_zero(reader, 2, result)]
                self.add(node, "RequantizeOnce", operands, result, DOMAIN, late=1)
                return
        shape = self.graph.tensors[sums].shape or ()
        real = self.add(node, "Cast", [sums], self.tensor(f"{found.result}.real", f32, shape), to=elem_type_of(f32))
        worth = self.constant(f"{found.result}.scale", scale, f32)
        if not real_bias:
            self.add(node, "Mul", [real, worth], found.result)
            return
        scaled = self.add(node, "Mul", [real, worth], self.tensor(f"{found.result}.scaled", f32, shape))
        self.add(node, "Add", [scaled, self.constant(f"{found.result}.bias", found.bias, f32)], found.result)

    def _linear(self, node: Node, found: ByteProduct, sums: str) -> None:
        """`QLinearMatMul`, as its definition says."""
        names = [node.inputs[k] for k in (1, 4, 6)]
        one, weights, step = (self.graph.constant(n) for n in names)
        if one is not None and weights is not None and step is not None:
            factor = (one.reshape(-1) * weights.reshape(-1) / step.reshape(-1)).astype(np.float32)
            if found.rounded_once(factor):
                zero = self.plain_zero(node, 7, found.result)
                stored = self.constant(f"{found.result}.factor", factor, f32)
                self.add(node, "RequantizeOnce", [sums, stored, zero], found.result, DOMAIN, late=0)
                return
        given = [n for n in node.inputs[7:8] if n]
        self.add(node, "Requantize", [sums, *names, *given], found.result, DOMAIN, axis=-1)

    def plain_zero(self, node: Node, position: int, codes: str) -> str:
        """The zero point of a tensor of codes, which is stored as it is."""
        name = node.inputs[position] if len(node.inputs) > position else ""
        kind = self.graph.tensors[codes].dtype
        assert kind is not None
        value = self.graph.constant(name) if name else np.zeros(1, np.int64)
        assert value is not None
        return self.constant(f"{codes}.zero", value.reshape(-1), kind)
