"""Products of a `Loop` that only its counter moves on, taken out of it.

    for t: x = X[t]; h = f(x @ W + b, h)    ->    P = X @ W + b;  for t: h = f(P[t], h)

A recurrent layer written as a loop multiplies a row of its input by its weights in each iteration, and reads all of
these for one row. Of a body's nodes those leave that make products of rows `X[t]` and tensors from outside, and what
follows of them element by element; the body reads rows of the result. (Appleyard et al., "Optimizing performance of
recurrent neural networks on GPUs", 2016, do this for layers that are known as such.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper

from polyc.graph_driver.graph.onnx_tensors import to_numpy
from polyc.graph_driver.graph.subgraphs import captured
from polyc.graph_driver.importing.unrolling import Surroundings, body_of
from polyc.poly.records import dataclass

UNARY = frozenset(("Abs", "Cast", "Erf", "Exp", "Identity", "Neg", "Not", "Relu", "Sigmoid", "Sqrt", "Tanh"))
BINARY = frozenset(("Add", "Div", "Mul", "Sub"))
LEAST = 0.5
"""The part of a tensor's rows that a loop has to read: of the others the products would be made in vain."""


@dataclass(frozen=True)
class Rows:
    """A tensor of the body as what an outer tensor has at the counter's place on an axis; `heavy` once it is made of a
    product."""

    whole: str
    axis: int
    rank: int
    index: str
    heavy: bool = False


def with_rows_outside(
    node: onnx.NodeProto, what: str, trips: Callable[[onnx.NodeProto, str], int | None], around: Surroundings
) -> tuple[list[onnx.NodeProto], onnx.NodeProto]:
    """Nodes to stand before a `Loop`, and the loop that reads their results; no nodes and the loop itself where it has
    no such products. `trips` tells how often a loop runs, where that is known.

    Raises `ModelError`: the body does not fit the node.
    """
    body = body_of(node, len(node.input) - 2, len(node.input), what)
    products = any(n.op_type in ("MatMul", "Gemm") for n in body.node)
    count = trips(node, what) if products and any(n.op_type == "Gather" for n in body.node) else None
    if count is None or count < 2:
        return [], node
    found = _Found(node, body, count, around, what)
    for n in body.node:
        found.visit(n)
    return found.result()


class _Found:
    """What leaves the body: visits its nodes in order."""

    def __init__(
        self, node: onnx.NodeProto, body: onnx.GraphProto, trips: int, around: Surroundings, what: str
    ) -> None:
        self.node, self.body, self.trips, self.around, self.what = node, body, trips, around, what
        own = {i.name for i in body.input} | {o for n in body.node for o in n.output}
        self.inside = own | {t.name for t in body.initializer}
        self.constants = {t.name: t for t in body.initializer}
        self.constants |= {
            n.output[0]: a.t for n in body.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"
        }
        self.alias: dict[str, str] = {}
        self.moving = {body.input[0].name, *self._counters()}
        self.rows: dict[str, Rows] = {}
        self.before: list[onnx.NodeProto] = []
        self.sizes: dict[str, tuple[int, ...] | None] = {}

    def _counters(self) -> Iterator[str]:
        """States that grow or shrink by one in each iteration."""
        made = {o: n for n in self.body.node for o in n.output}
        for k, state in enumerate(self.node.input[2:]):
            name, last = self.body.input[2 + k].name, self.body.output[1 + k].name
            while last in made and made[last].op_type == "Identity":
                last = made[last].input[0]
            step = made.get(last)
            if (
                step is None
                or step.op_type not in ("Add", "Sub")
                or name not in step.input
                or self.around.shape(state) != ()
            ):
                continue
            other = [x for x in step.input if x != name]
            value = self._value(other[0]) if len(other) == 1 else None
            if value is not None and value.shape == () and abs(value) == 1:
                yield name

    def _value(self, name: str) -> np.ndarray | None:
        """Of a constant of the body, or outside."""
        if name in self.constants:
            return to_numpy(self.constants[name], None, self.what)
        return None if name in self.inside else self.around.known(name)

    def outer(self, name: str) -> str | None:
        """The name outside of a tensor that no iteration changes; a constant of the body gets one."""
        if name in self.constants and name not in self.alias:
            self.alias[name] = self.around.fresh(f"{name}@outside")
            self.sizes[self.alias[name]] = tuple(self.constants[name].dims)
            value = onnx.TensorProto()
            value.CopyFrom(self.constants[name])
            self.before.append(helper.make_node("Constant", [], [self.alias[name]], value=value))
        return self.alias.get(name) or (name if name and name not in self.inside else None)

    def rank(self, name: str) -> int | None:
        """Of an outer tensor."""
        sizes = self.shape(name)
        return None if sizes is None else len(sizes)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Of an outer tensor; sizes may be formulas."""
        if name not in self.sizes:
            self.sizes[name] = self.around.shape(name)
        return self.sizes[name]

    def visit(self, n: onnx.NodeProto) -> None:
        """Note what a node makes of the counter, of outer tensors, and of rows."""
        if n.domain or len(n.output) != 1:
            return
        inputs, (out,) = list(n.input), n.output
        if n.op_type == "Identity" and (name := self.outer(inputs[0])) is not None:
            self.alias[out] = name
        elif n.op_type in ("Identity", "Cast") and inputs[0] in self.moving:
            self.moving.add(out)
        elif n.op_type == "Gather":
            self._row(n)
        elif n.op_type in ("MatMul", "Gemm") and inputs[0] in self.rows:
            self._product(n)
        elif n.op_type in UNARY and inputs[0] in self.rows:
            row = self.rows[inputs[0]]
            self._make(out, n, [row.whole], row, row.heavy)
        elif n.op_type in BINARY:
            self._pair(n)

    def _row(self, n: onnx.NodeProto) -> None:
        whole = self.outer(n.input[0])
        sizes = None if whole is None else self.shape(whole)
        if whole is None or sizes is None or n.input[1] not in self.moving:
            return
        axis = next((a.i for a in n.attribute if a.name == "axis"), 0)
        axis += len(sizes) if axis < 0 else 0
        if not 0 <= axis < len(sizes) - 1 or not isinstance(sizes[axis], int):
            return
        if self.trips >= LEAST * sizes[axis]:
            self.rows[n.output[0]] = Rows(whole, axis, len(sizes), n.input[1])

    def _product(self, n: onnx.NodeProto) -> None:
        """`x @ W`, or `x @ W + c` as a `Gemm`."""
        row, attributes = self.rows[n.input[0]], {a.name: helper.get_attribute_value(a) for a in n.attribute}
        weights = self.outer(n.input[1])
        if weights is None or self.rank(weights) != 2 or row.axis > row.rank - 2:
            return
        if n.op_type == "MatMul":
            self._make(n.output[0], n, [row.whole, weights], row, True)
            return
        added = self.outer(n.input[2]) if len(n.input) > 2 and n.input[2] else ""
        plain = not attributes.get("transA", 0) and attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0
        if not plain or added is None or row.rank != 3 or (added and (self.rank(added) or 9) > 2 - row.axis):
            return
        if attributes.get("transB", 0):
            turned = self.around.fresh(f"{weights}@turned")
            self.before.append(helper.make_node("Transpose", [weights], [turned], perm=[1, 0]))
            weights = turned
        product = helper.make_node("MatMul", ["", ""], [""], name=n.name)
        if not added:
            self._make(n.output[0], product, [row.whole, weights], row, True)
            return
        whole = self.around.fresh(f"{n.output[0]}@product")
        self.before.append(helper.make_node("MatMul", [row.whole, weights], [whole], name=n.name))
        self._make(n.output[0], helper.make_node("Add", ["", ""], [""]), [whole, added], row, True)

    def _pair(self, n: onnx.NodeProto) -> None:
        """An operation element by element on a row and a tensor from outside, or on two rows."""
        rows = [self.rows.get(name) for name in n.input]
        row = next((r for r in rows if r is not None), None)
        if row is None:
            return
        inputs = []
        for name, own in zip(n.input, rows, strict=True):
            if own is not None:
                if (own.axis, own.rank, own.index) != (row.axis, row.rank, row.index):
                    return
                inputs.append(own.whole)
            else:
                other = self.outer(name)
                rank = None if other is None else self.rank(other)
                if other is None or rank is None or rank > row.rank - 1 - row.axis:
                    return
                inputs.append(other)
        self._make(n.output[0], n, inputs, row, any(r is not None and r.heavy for r in rows))

    def _make(self, out: str, n: onnx.NodeProto, inputs: list[str], row: Rows, heavy: bool) -> None:
        """The node outside, on whole tensors."""
        whole = onnx.NodeProto()
        whole.CopyFrom(n)
        del whole.input[:], whole.output[:]
        name = self.around.fresh(f"{out}@rows")
        whole.input.extend(inputs)
        whole.output.append(name)
        self.before.append(whole)
        self.rows[out] = Rows(name, row.axis, row.rank, row.index, heavy)

    def result(self) -> tuple[list[onnx.NodeProto], onnx.NodeProto]:
        """The nodes that what the body still reads needs, and the loop."""
        heavy = {name for name, row in self.rows.items() if row.heavy}
        kept = [n for n in self.body.node if not (len(n.output) == 1 and n.output[0] in heavy)]
        read = {name for n in kept for name in (*n.input, *captured(n))} | {o.name for o in self.body.output}
        wanted = {self.rows[name].whole for name in heavy & read}
        if not wanted:
            return [], self.node
        before = []
        for n in reversed(self.before):
            if n.output[0] in wanted:
                wanted.update(n.input)
                before.append(n)
        short = onnx.NodeProto()
        short.CopyFrom(self.node)
        body = next(a.g for a in short.attribute if a.name == "body")
        nodes = []
        for n in self.body.node:
            if len(n.output) == 1 and n.output[0] in heavy:
                if n.output[0] in read:
                    row = self.rows[n.output[0]]
                    nodes.append(
                        helper.make_node("Gather", [row.whole, row.index], [n.output[0]], n.name, axis=row.axis)
                    )
            else:
                nodes.append(n)
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del body.node[:]
        body.node.extend(copies)
        return before[::-1], short
