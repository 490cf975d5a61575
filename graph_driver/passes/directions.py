"""Bidirectional recurrent layers as two of one direction and a concatenation.

Each then reads constant weights as they lie (no part of a larger array is cut out in a run), which are stored in the
order in which its products read them; and the two are independent steps of the plan.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.graph_driver.graph.ir import Graph, Node, Tensor

RECURRENT = {"LSTM": 3, "GRU": 2, "RNN": 1, "DynamicQuantizeLSTM": 3}  # number of activations of a direction
_DOMAINS = {"LSTM": "", "GRU": "", "RNN": "", "DynamicQuantizeLSTM": "com.microsoft"}
_SHARED = (0, 4)  # positions of the inputs that both directions read: the sequence and its lengths
_STATES = (5, 6)


def split_directions(graph: Graph) -> dict[str, int]:
    """Replace bidirectional layers whose weights are constants; how many. States to begin with, if they are made in a
    run, are cut in two."""
    count, nodes = 0, []
    for node in graph.nodes:
        made = _halves(graph, node)
        count += bool(made)
        nodes += made or [node]
    graph.nodes = nodes
    return {"layers": count}


def _halves(graph: Graph, node: Node) -> list[Node]:
    """The nodes in place of `node`; none when it is not meant here."""
    known = _DOMAINS.get(node.op_type) == node.domain and node.attrs.get("direction") == "bidirectional"
    if (
        not known
        or node.attrs.get("layout", 0)
        or any(node.attrs.get(k) for k in ("activation_alpha", "activation_beta"))
    ):
        return []
    own = [(k, name) for k, name in enumerate(node.inputs) if name and k not in _SHARED]
    made_in_a_run = [(k, name) for k, name in own if graph.constant(name) is None]
    static = all(graph.tensors[t].static for t in (*node.writes(), *(name for _, name in made_in_a_run)))
    if not static or any(k not in _STATES for k, _ in made_in_a_run):
        return []
    results: dict[str, list[str]] = {o: [] for o in node.writes()}
    nodes, halves = [], dict[str, list[str]]()
    for k, name in made_in_a_run:
        if name not in halves:
            halves[name] = [_result(graph, name, d, 0) for d in range(2)]
            two = {"num_outputs": 2} if graph.opsets.get("", 1) >= 18 else {}
            nodes.append(Node(f"{node.name}.{k}.split", "Split", [name], halves[name], {"axis": 0, **two}))
    for d, direction in enumerate(("forward", "reverse")):
        inputs = list(node.inputs)
        for k, name in own:
            inputs[k] = halves[name][d] if name in halves else _half(graph, name, d)
        outputs = []
        for k, name in enumerate(node.outputs):
            outputs.append(_result(graph, name, d, 1 if k == 0 else 0) if name else "")
            if name:
                results[name].append(outputs[-1])
        attrs = {**node.attrs, "direction": direction}
        if attrs.get("activations"):
            each = RECURRENT[node.op_type]
            attrs["activations"] = list(attrs["activations"])[d * each : (d + 1) * each]
        nodes.append(Node(f"{node.name}.{direction}", node.op_type, inputs, outputs, attrs, node.domain))
    for k, name in enumerate(node.outputs):
        if name:
            axis = {"axis": 1 if k == 0 else 0}
            nodes.append(Node(f"{node.name}.{k}", "Concat", results[name], [name], axis))
    return nodes


def _half(graph: Graph, name: str, d: int) -> str:
    """Direction `d` of a constant."""
    tensor = graph.tensors[name]
    assert tensor.const is not None
    part = tensor.const[d : d + 1]
    made = graph.fresh(f"{name}.{d}")
    graph.tensors[made] = Tensor(made, tensor.dtype, part.shape, part)
    return made


def _result(graph: Graph, name: str, d: int, axis: int) -> str:
    """A tensor like `name` with one direction."""
    tensor = graph.tensors[name]
    assert tensor.shape is not None
    made = graph.fresh(f"{name}.{d}")
    shape = (*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :])
    graph.tensors[made] = replace(tensor, name=made, shape=shape)
    return made
