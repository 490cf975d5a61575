"""Slices of a graph: from elements of a result to those of inputs and weights, and from an input to results.

Each node's Scop says which of its elements depend on which (`polyc.poly.origins`); the sets go from node to node. A
node without a Scop counts as one whose results depend on everything that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

import islpy as isl

from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.operators.context import OperatorScop, array_shape
from polyc.graph_driver.operators.pieces import Lookup, translate_one
from polyc.graph_driver.slices.elements import elements_of, name_of
from polyc.graph_driver.slices.reshaping import reshaped
from polyc.poly.errors import ArgumentError, PolycError
from polyc.poly.forms.element_sets import Run, box, count, plain
from polyc.poly.origins import Origins, origins
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Slice:
    """Elements of each tensor, by name. `nodes`: those that the slice goes through, in the order of the graph.

    `bounds`: by node, why its sets are upper bounds; empty where all are exact.
    """

    sets: Mapping[str, isl.Set]
    nodes: tuple[Node, ...]
    bounds: Mapping[str, str] = field(default_factory=dict)

    def count(self, tensor: str) -> int:
        """How many elements of a tensor are in it."""
        return count(self.sets[tensor]) if tensor in self.sets else 0


def backward(graph: Graph, wanted: Sequence[str], lookup: Lookup) -> Slice:
    """What the elements `wanted` (as `y[3, 5]`) of any tensors depend on.

    Raises:
        ArgumentError: there is no such tensor or element, or a size is not known.
    """
    return _Slicer(graph, lookup).backward(_asked(graph, wanted))


def forward(graph: Graph, changed: Sequence[str], lookup: Lookup) -> Slice:
    """What depends on the elements `changed` of any tensors. Raises as `backward`."""
    return _Slicer(graph, lookup).forward(_asked(graph, changed))


def _asked(graph: Graph, texts: Sequence[str]) -> dict[str, isl.Set]:
    out: dict[str, isl.Set] = {}
    for text in texts:
        name = text.strip() if text.strip() in graph.tensors else name_of(text)
        if name not in graph.tensors:
            there = ", ".join([*graph.outputs, *graph.inputs][:8])
            raise ArgumentError(f"the model has no tensor '{name}' (its outputs and inputs: {there})")
        shape = _shape(graph, name)
        _join(out, name, elements_of(text if name != text.strip() else name, name, shape))
    return out


def _shape(graph: Graph, name: str) -> tuple[int, ...]:
    shape = graph.tensors[name].shape
    if shape is None or not all(isinstance(n, int) for n in shape):
        raise ArgumentError(f"the shape of '{name}' is not known: give sizes (--dim NAME=V)")
    return shape


class _Slicer:
    def __init__(self, graph: Graph, lookup: Lookup) -> None:
        self.graph, self.lookup = graph, lookup
        self.bounds: dict[str, str] = {}
        self.read = {*graph.outputs, *(i for n in graph.nodes for i in n.reads())}

    def backward(self, sets: dict[str, isl.Set]) -> Slice:
        nodes = []
        for node in reversed(self.graph.nodes):
            wanted = {o: sets[o] for o in node.writes() if o in sets}
            if wanted:
                nodes.append(node)
                for name, elements in self.through(node, wanted, node.writes(), node.reads(), Origins.backward).items():
                    _join(sets, name, elements)
        return Slice(sets, tuple(reversed(nodes)), self.bounds)

    def forward(self, sets: dict[str, isl.Set]) -> Slice:
        nodes = []
        for node in self.graph.nodes:
            changed = {i: sets[i] for i in node.reads() if i in sets}
            if changed:
                nodes.append(node)
                for name, elements in self.through(node, changed, node.reads(), node.writes(), Origins.forward).items():
                    _join(sets, name, elements)
        return Slice(sets, tuple(nodes), self.bounds)

    def through(
        self, node: Node, sets: Mapping[str, isl.Set], near: object, far: object,
        along: Callable[[Origins, Mapping[str, isl.Set]], dict[str, isl.Set]],
    ) -> dict[str, isl.Set]:  # fmt: skip
        """The sets of the tensors on the far side of a node."""
        back = along is Origins.backward
        if is_view(node):
            ends = node.outputs[0], node.inputs[0]
            start, end = ends if back else ends[::-1]
            moved = sets[start].apply(reshaped(("", _shape(self.graph, start)), ("", _shape(self.graph, end))))
            return {end: plain(moved)}
        node = self.used(node)
        piece = translate_one(self.graph, node, self.lookup)
        if piece.operator is None:
            return self.everything(node, back, piece.reason)
        try:
            relations = origins(piece.operator.scop)
            wires = self.wires(node, piece.operator)
            there: dict[str, isl.Set] = {}
            for tensor, array, is_result in wires:
                if is_result == back and tensor in sets:
                    _join(there, array, self.moved(sets[tensor], tensor, array, piece.operator, into=True))
            found = along(relations, there)
            out: dict[str, isl.Set] = {}
            for tensor, array, is_result in wires:
                if is_result != back and array in found:
                    _join(out, tensor, self.moved(found[array], tensor, array, piece.operator, into=False))
        except PolycError as error:
            return self.everything(node, back, str(error))
        if relations.bounds:
            self.bounds[node.name or node.kind] = "; ".join(relations.bounds)
        return {name: plain(elements) for name, elements in out.items()}

    def used(self, node: Node) -> Node:
        """The node without the last of its outputs that nobody reads: what is unknown of them is no matter."""
        outputs = list(node.outputs)
        while len(outputs) > 1 and outputs[-1] not in self.read:
            outputs.pop()
        return node if len(outputs) == len(node.outputs) else replace(node, outputs=outputs)

    def wires(self, node: Node, operator: OperatorScop) -> list[tuple[str, str, bool]]:
        """Tensor, array, and whether it is a result."""
        inputs = [(node.inputs[position], array, False) for position, array in operator.inputs]
        return inputs + [(t, a, True) for t, a in zip(node.writes(), operator.outputs, strict=True)]

    def moved(self, elements: isl.Set, tensor: str, array: str, operator: OperatorScop, into: bool) -> isl.Set:
        """A set of the tensor's elements as one of the array's, or back: arrays may have dimensions joined."""
        here, there = ("", _shape(self.graph, tensor)), (array, array_shape(operator, array) or ())
        if tuple(here[1]) == tuple(there[1]):
            return elements.set_tuple_name(array) if into else elements.reset_tuple_id()
        return elements.apply(reshaped(here, there) if into else reshaped(there, here))

    def everything(self, node: Node, back: bool, why: str) -> dict[str, isl.Set]:
        self.bounds[node.name or node.kind] = f"everything counts: {why}"
        names = [n for n in (node.reads() if back else node.writes())]
        return {
            n: box("", [[Run(0, k - 1)] for k in _shape(self.graph, n)]) for n in names if self.graph.tensors[n].size
        }


def _join(found: dict[str, isl.Set], name: str, more: isl.Set) -> None:
    if not more.is_empty():
        found[name] = plain(found[name].union(more)) if name in found else more
