"""Identities and dead code."""

from __future__ import annotations

from polyc.graph_driver.graph.ir import Graph, Node


def replace_uses(graph: Graph, old: str, new: str) -> None:
    """Every reader of `old` reads `new` instead (the caller has made sure that none captures it)."""
    for node in graph.nodes:
        node.inputs = [new if i == old else i for i in node.inputs]


def remove_dead(graph: Graph) -> dict[str, int]:
    """Drop nodes and tensors that no output needs, and unused optional outputs of the rest."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(o in needed for o in node.writes()):
            kept.append(node)
            needed.update(node.reads())
    removed = len(graph.nodes) - len(kept)
    graph.nodes = kept[::-1]
    used = needed | set(graph.inputs)
    trimmed = 0
    for node in graph.nodes:
        while len(node.outputs) > 1 and node.outputs[-1] not in used and _optional(node):
            node.outputs.pop()
            trimmed += 1
        used.update(node.writes())
    tensors = len(graph.tensors)
    graph.tensors = {name: t for name, t in graph.tensors.items() if name in used}
    return {"nodes": removed, "outputs": trimmed, "tensors": tensors - len(graph.tensors)}


def _optional(node: Node) -> bool:
    """Whether the last output may be left out (a multi-output operator like Split needs all)."""
    return node.op_type in ("Dropout", "MaxPool", "BatchNormalization", "LayerNormalization", "LSTM", "GRU", "RNN")


def is_identity(graph: Graph, node: Node) -> bool:
    """Whether the first output always equals the first input."""
    if node.domain:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        if any(o for o in node.outputs[1:]) and any(
            o in set(graph.outputs) or o in graph.consumers() for o in node.outputs[1:]
        ):
            return False
        if len(node.inputs) > 2 and node.inputs[2]:
            training = graph.constant(node.inputs[2])
            return training is not None and not bool(training.reshape(()))
        return not node.attrs.get("training_mode", 0)
    source, result = graph.tensors[node.inputs[0]] if node.inputs and node.inputs[0] else None, node.outputs[0]
    if source is None or not source.static or not result:
        return False
    target = graph.tensors[result]
    if node.op_type == "Cast":
        return source.dtype == target.dtype
    if node.op_type in ("Concat", "Sum", "Max", "Min", "Mean"):
        return len(node.inputs) == 1
    return False


def remove_identities(graph: Graph) -> dict[str, int]:
    """Readers of an identity's result read its operand; a graph output keeps its node."""
    captured = {c for n in graph.nodes for c in n.captures}
    outputs = set(graph.outputs)
    kept: list[Node] = []
    alias: dict[str, str] = {}
    for node in graph.nodes:
        node.inputs = [alias.get(i, i) for i in node.inputs]
        result = node.outputs[0] if node.outputs else ""
        if result and result not in captured and result not in outputs and is_identity(graph, node):
            alias[result] = node.inputs[0]
        else:
            kept.append(node)
    removed = len(graph.nodes) - len(kept)
    graph.nodes = kept
    for name in alias:
        del graph.tensors[name]
    return {"identities": removed}
