"""Products with constant weights put side by side: the nodes that stand for all of them, and the cut after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.poly.dtypes import DType, i64
from polyc.poly.records import dataclass

BESIDE = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"))  # of two operands, broadcast from the right


@dataclass(frozen=True)
class Strand:
    """A product (`head`) and the pointwise nodes that follow it; `made`: their results in order."""

    head: Node
    after: tuple[Node, ...]
    made: tuple[str, ...]

    @property
    def result(self) -> str:
        """What the last node makes."""
        return self.made[-1]

    def __str__(self) -> str:
        return f"{self.head.kind} '{self.head.name or self.head.outputs[0]}'"


def column_axis(graph: Graph, strand: Strand) -> int:
    """The axis of the result that the columns (filters) of the weights make."""
    return 1 if strand.head.op_type == "Conv" else len(graph.tensors[strand.result].shape or ()) - 1


def side_by_side(graph: Graph, strands: Sequence[Strand], slices: bool = False) -> list[Node]:
    """One product for all heads, one node for each row of nodes after them, and the cut of the result: a `Split`, or
    a `Slice` for each strand, which its reader can take in.

    The strands are alike but for the columns of their weights and for constants beside their results. New
    tensors join `graph`, its nodes stay as they are.
    """
    return _Joining(graph, strands).nodes(slices)


class _Joining:
    """What the joined nodes share: the axis of the columns and how many each strand has."""

    def __init__(self, graph: Graph, strands: Sequence[Strand]) -> None:
        self.graph, self.strands = graph, strands
        self.axis = column_axis(graph, strands[0])
        self.widths = [int((graph.tensors[s.result].shape or ())[self.axis]) for s in strands]

    def nodes(self, slices: bool) -> list[Node]:
        first = self.strands[0]
        made = [self.result(first.made[0])]
        out = [Node(first.head.name, first.head.op_type, self.operands(), made[:1], dict(first.head.attrs))]
        for k, node in enumerate(first.after):
            rows = [s.after[k].inputs for s in self.strands]
            inputs = [
                made[first.made.index(i)] if i in first.made else self.beside([row[j] for row in rows])
                for j, i in enumerate(node.inputs)
            ]
            made.append(self.result(first.made[k + 1]))
            out.append(Node(node.name, node.op_type, inputs, made[-1:], dict(node.attrs)))
        return [*out, *(self.slices(made[-1]) if slices else [self.cut(made[-1])])]

    def operands(self) -> list[str]:
        """Of the product: the shared operand, the weights, and what is added to each column if anything is."""
        heads = [s.head for s in self.strands]
        across = 0 if heads[0].op_type == "Conv" or heads[0].attrs.get("transB", 0) else 1
        weights = [self.value(h.inputs[1]) for h in heads]
        out = [heads[0].inputs[0], self.constant(heads[0].inputs[1], np.concatenate(weights, across))]
        given = [h.inputs[2] if len(h.inputs) > 2 else "" for h in heads]
        if any(given):
            rows = [
                np.broadcast_to(self.value(g).reshape(-1) if g else np.zeros(1, weights[0].dtype), (n,))
                for g, n in zip(given, self.widths, strict=True)
            ]  # fmt: skip
            out.append(self.constant(next(g for g in given if g), np.concatenate(rows)))
        return out

    def beside(self, names: Sequence[str]) -> str:
        """The constants of the strands for one operand; one of them where they are equal for all columns."""
        if not names[0]:
            return ""
        rank = len(self.graph.tensors[self.strands[0].result].shape or ())
        values = [self.value(n) for n in names]
        full = [v.reshape((1,) * (rank - v.ndim) + v.shape) for v in values]
        same = all(v.shape == values[0].shape and v.tobytes() == values[0].tobytes() for v in values)
        if same and full[0].shape[self.axis] == 1:
            return names[0]
        common = np.broadcast_shapes(*((*f.shape[: self.axis], 1, *f.shape[self.axis + 1 :]) for f in full))
        parts = [
            np.broadcast_to(f, (*common[: self.axis], n, *common[self.axis + 1 :]))
            for f, n in zip(full, self.widths, strict=True)
        ]  # fmt: skip
        return self.constant(names[0], np.concatenate(parts, self.axis))

    def cut(self, whole: str) -> Node:
        """The results of the strands out of the joined one."""
        attrs: dict[str, Any] = {"axis": self.axis}
        inputs = [whole]
        if self.graph.opsets.get("", 1) >= 13:
            inputs.append(self.tensor(f"{whole} sizes", i64, np.array(self.widths, np.int64)))
        else:
            attrs["split"] = self.widths
        return Node(f"{self.strands[0].head.name} parts", "Split", inputs, [s.result for s in self.strands], attrs)

    def slices(self, whole: str) -> list[Node]:
        """The result of each strand as a node of its own."""
        found, begin = [], 0
        for s, width in zip(self.strands, self.widths, strict=True):
            ends = {"starts": [begin], "ends": [begin + width], "axes": [self.axis]}
            attrs: dict[str, Any] = {}
            inputs = [whole]
            if self.graph.opsets.get("", 1) >= 10:
                inputs += [self.tensor(f"{s.result} {n}", i64, np.array(v, np.int64)) for n, v in ends.items()]
            else:
                attrs |= ends
            found.append(Node(f"{s.head.name} part", "Slice", inputs, [s.result], attrs))
            begin += width
        return found

    def result(self, like: str) -> str:
        """A tensor like `like` with all columns."""
        t = self.graph.tensors[like]
        shape = (*(t.shape or ())[: self.axis], sum(self.widths), *(t.shape or ())[self.axis + 1 :])
        name = self.graph.fresh(f"{like} joined")
        self.graph.tensors[name] = Tensor(name, t.dtype, shape)
        return name

    def value(self, name: str) -> np.ndarray:
        value = self.graph.constant(name)
        assert value is not None
        return value

    def constant(self, like: str, value: np.ndarray) -> str:
        """A constant of the same type as the constant `like`."""
        dtype = self.graph.tensors[like].dtype
        assert dtype is not None
        return self.tensor(f"{like} joined", dtype, value)

    def tensor(self, stem: str, dtype: DType, value: np.ndarray) -> str:
        name = self.graph.fresh(stem)
        self.graph.tensors[name] = Tensor(name, dtype, value.shape, value)
        return name
