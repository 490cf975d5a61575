"""What a rewriting rule sees of a graph, and how its answer is put in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.poly.dtypes import from_numpy
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class New:
    """A node in the place of another: operator (of ONNX's own domain), operands, attributes."""

    op_type: str
    inputs: tuple[str | np.ndarray, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


# A tensor that is there already, a constant, or another node.
Answer = str | np.ndarray | New


class Sight:
    """Producers and constants of a graph while it is rewritten."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = {o: n for n in graph.nodes for o in n.writes()}
        self.fixed = set(graph.outputs) | {c for n in graph.nodes for c in n.captures}

    def by(self, name: str, *op_types: str) -> Node | None:
        """The node that makes `name` if it is one of these operators, by its first output."""
        node = self.made.get(name)
        if node is None or node.domain or node.op_type not in op_types or node.outputs[0] != name:
            return None
        return node

    def uniform(self, name: str) -> Any:
        """The value of a constant all of whose elements have the same bits, as a NumPy scalar; else None."""
        value = self.graph.constant(name) if name else None
        if value is None or value.size == 0 or value.dtype.hasobject:
            return None
        small = value[tuple(slice(0, 1) if step == 0 else slice(None) for step in value.strides)]
        first = small.reshape(-1)[:1]
        flat = np.ascontiguousarray(small).reshape(-1)
        same = flat.size == 1 or bool((flat.view(np.uint8).reshape(flat.size, -1) == first.view(np.uint8)).all())
        return first[0] if same else None

    def tensor(self, name: str) -> Tensor:
        """What the graph knows of a tensor."""
        return self.graph.tensors[name]

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape when it is known and all numbers."""
        t = self.graph.tensors[name]
        numbers = tuple(n for n in t.shape or () if isinstance(n, int))
        return numbers if t.static and len(numbers) == len(t.shape or ()) else None

    def is_int(self, name: str) -> bool:
        """Whether the tensor holds integers."""
        dtype = self.graph.tensors[name].dtype
        return dtype is not None and dtype.is_int


@dataclass(frozen=True)
class Rule:
    """One rewriting: `answer` gives what a node of `op_types` may be replaced by, None where it does not apply.

    `exact` rules keep every bit (of a NaN: that it is one), whatever the operands.
    """

    name: str
    op_types: tuple[str, ...]
    answer: Callable[[Sight, Node], Answer | None]
    exact: bool = True


def rewrite(graph: Graph, rules: Sequence[Rule]) -> dict[str, int]:
    """Apply `rules` to every node in order, operands first; how often each did something."""
    by_type: dict[str, list[Rule]] = {}
    for rule in rules:
        for op_type in rule.op_types:
            by_type.setdefault(op_type, []).append(rule)
    sight, counts = Sight(graph), dict.fromkeys((r.name for r in rules), 0)

    def first(node: Node) -> Answer | None:
        for rule in by_type.get(node.op_type, ()):
            answer = rule.answer(sight, node)
            if answer is not None and _fits(sight, node, answer):
                counts[rule.name] += 1
                return answer
        return None

    replace_results(sight, first)
    return counts


def replace_results(sight: Sight, answer: Callable[[Node], Answer | None]) -> None:
    """Put `answer(node)` in the place of each node that it is not None for, until it is None for all.

    Asked are ONNX's own operators with one result of known size, operands first.
    """
    alias: dict[str, str] = {}
    kept: list[Node] = []
    for node in sight.graph.nodes:
        node.inputs = [alias.get(i, i) for i in node.inputs]
        stays = True
        while stays and _replaceable(sight, node) and (found := answer(node)) is not None:
            stays = _put(sight, node, found, alias)
        if stays:
            kept.append(node)
    sight.graph.nodes = kept


def _replaceable(sight: Sight, node: Node) -> bool:
    single = len([*node.writes()]) == 1 and bool(node.outputs[0])
    return single and not node.domain and not node.captures and sight.tensor(node.outputs[0]).static


def _fits(sight: Sight, node: Node, answer: Answer) -> bool:
    """Whether an existing tensor has the type and shape of the node's result (no broadcasting is left out)."""
    if isinstance(answer, np.ndarray):
        return sight.shape(node.outputs[0]) is not None
    if isinstance(answer, New):
        return True
    source, result = sight.tensor(answer), sight.tensor(node.outputs[0])
    return source.static and source.dtype == result.dtype and source.shape == result.shape


def _put(sight: Sight, node: Node, answer: Answer, alias: dict[str, str]) -> bool:
    """Make the node's result by `answer`; whether the node stays."""
    graph, result = sight.graph, sight.tensor(node.outputs[0])
    if isinstance(answer, New):
        inputs = [i if isinstance(i, str) else _constant(graph, node, i) for i in answer.inputs]
        return _become(node, answer.op_type, inputs, dict(answer.attrs))
    if isinstance(answer, np.ndarray):
        assert result.dtype is not None
        value = np.broadcast_to(answer.astype(result.dtype.np), sight.shape(result.name) or ())
        if result.name in sight.fixed:
            return _become(node, "Identity", [_constant(graph, node, value)], {})
        graph.tensors[result.name] = Tensor(result.name, result.dtype, result.shape, value)
    elif result.name in sight.fixed:
        return _become(node, "Identity", [answer], {})
    else:
        alias[result.name] = answer
        del graph.tensors[result.name]
    sight.made.pop(result.name, None)
    return False


def _become(node: Node, op_type: str, inputs: Sequence[str], attrs: dict[str, Any]) -> bool:
    node.op_type, node.inputs, node.attrs, node.proto = op_type, list(inputs), attrs, None
    return True


def _constant(graph: Graph, node: Node, value: np.ndarray) -> str:
    name = graph.fresh(f"{node.outputs[0]}.constant")
    graph.tensors[name] = Tensor(name, from_numpy(value.dtype), value.shape, value)
    return name
