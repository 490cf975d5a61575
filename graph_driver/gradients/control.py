"""Gradients of control flow that stays in the plan: `If`, and `Loop` and `Scan` whose count only a run may tell.

    If:    the same condition; each branch runs again, then backwards.
    Loop:  the forward loop also returns the states that each iteration begins with, one behind the other. A `Scan` goes
           over them from the last one to the first: its body runs the iteration again, then backwards. Its states are
           the gradients of the loop's states, and sums for the tensors around that the body reads.
    Scan:  the same; elements of sequences are read once more, and their gradients are its rows.

So a run keeps the states of its iterations, and computes each iteration twice (stacks for loops whose count data
decide: Yu et al., "Dynamic control flow in large-scale machine learning", 1805.01772).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.registry import Answer, Gradients, gradient
from polyc.graph_driver.graph.control import DOMAIN, KINDS
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass


@gradient(*KINDS, *(f"{DOMAIN}::{k}" for k in KINDS))
def control(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Gradients of inputs, then of the tensors that the bodies read of the graph around them.

    Raises:
        ModelError: a body is not compiled, or has no derivative.
    """
    if not node.bodies or None in node.bodies:
        raise ModelError(f"{node.op_type} '{node.name}' has no derivative: it runs on the host")
    return _if(b, node, grads) if node.op_type == "If" else _loop(b, node, grads)


def _wanted(b: Builder, node: Node) -> list[str]:
    """The tensors around a node that need gradients from it."""
    return [c for c in dict.fromkeys(node.captures) if b.wanted(c)]


def _if(b: Builder, node: Node, grads: Gradients) -> Answer:
    wanted = _wanted(b, node)
    branches = [_Body(b.graph, _there(body)) for body in node.bodies]
    for body in branches:
        seeds = {r: body.outside(b, g) for r, g in zip(body.results, grads, strict=True) if g is not None}
        found = body.backward(seeds, [c for c in wanted if c in body.graph.inputs])
        for c in wanted:
            body.give(found[c] if c in found else body.builder.zeros_of(b.graph.tensors[c]))
    outputs = [_like(b, c) for c in wanted]
    needed = [body.pruned() for body in branches]
    captures = tuple(dict.fromkeys(i for body in branches for i in body.graph.inputs if any(i in n for n in needed)))
    for body in branches:
        body.graph.inputs[:] = captures
        for c in captures:
            body.graph.tensors.setdefault(c, b.graph.tensors[c])
    b.graph.nodes.append(
        Node(outputs[0], "If", [node.inputs[0]], outputs, {}, DOMAIN, captures, None, tuple(x.graph for x in branches))
    )
    made = dict(zip(wanted, outputs, strict=True))
    return [None, *(made.get(c) for c in node.captures)]


def _there(body: Graph | None) -> Graph:
    assert body is not None
    return body


def _like(b: Builder, name: str) -> str:
    """A new tensor of the type and shape of another one."""
    old = b.graph.tensors[name]
    new = b.graph.fresh(f"{b.stem}.{name}")
    b.graph.tensors[new] = Tensor(new, old.dtype, old.shape)
    return new


@dataclass
class _Body:
    """A body that becomes that of a gradient: a copy of its graph, to which nodes are added."""

    around: Graph
    source: Graph
    graph: Graph = field(init=False)
    builder: Builder = field(init=False)

    def __post_init__(self) -> None:
        s = self.source
        nodes = [replace(n, inputs=[*n.inputs], outputs=[*n.outputs]) for n in s.nodes]
        self.graph = Graph(s.name, s.opsets, [*s.inputs], [], dict(s.tensors), nodes)
        self.results = [*s.outputs]
        self.builder = Builder(self.graph, "gradient")

    def outside(self, b: Builder, name: str) -> str:
        """A tensor of the graph around as one of the body: an input, or a constant."""
        while name in self.source.tensors:  # another tensor of the body has its name
            name = b.copied(name)
        if name not in self.graph.tensors:
            tensor = self.around.tensors[name]
            self.graph.tensors[name] = tensor
            if tensor.const is None:
                self.graph.inputs.append(name)
        return name

    def own(self, like: Tensor, stem: str, at: int) -> str:
        """A new input at a place of those that the body has by itself."""
        name = self.graph.fresh(stem)
        while name in self.around.tensors:  # an input of that name would be taken for a tensor around
            name = self.graph.fresh(f"{name}.own")
        self.graph.tensors[name] = Tensor(name, like.dtype, like.shape)
        self.graph.inputs.insert(at, name)
        return name

    def backward(self, seeds: Mapping[str, str], wrt: Sequence[str]) -> dict[str, str]:
        """Gradients of `wrt` in the body."""
        from polyc.graph_driver.gradients.reverse import add_gradients

        return add_gradients(self.graph, seeds, wrt) if wrt else {}

    def give(self, name: str) -> str:
        """A tensor as a result of its own."""
        self.builder.stem = "gradient"
        made = self.builder.copied(name)
        self.graph.outputs.append(made)
        return made

    def pruned(self) -> set[str]:
        """The inputs that its results depend on; all nodes that they do not depend on are gone."""
        live = set(self.graph.outputs)
        nodes = []
        for node in reversed(self.graph.nodes):
            if any(o in live for o in node.writes()):
                live.update(node.reads())
                nodes.append(node)
        self.graph.nodes[:] = nodes[::-1]
        return live & {*self.graph.inputs}


@dataclass(frozen=True)
class _Form:
    """A loop's parts: how many of the body's first inputs and results are no states, the node's states and sequences,
    and for sequences and rows the axis and whether they are gone through backwards."""

    first: int
    states: list[str]
    sequences: list[str]
    axes: list[int]
    back: list[int]
    row_axes: list[int]
    row_back: list[int]


def _form(node: Node, body: Graph) -> _Form:
    if node.op_type == "Loop":
        rows = len(body.outputs) - len(node.inputs) + 1
        return _Form(1, [*node.inputs[2:]], [], [], [], [0] * rows, [0] * rows)
    count = int(node.attrs["num_scan_inputs"])
    states, sequences = [*node.inputs[:-count]], [*node.inputs[-count:]]
    rows = len(body.outputs) - len(states)

    def listed(name: str, length: int) -> list[int]:
        return [*map(int, node.attrs.get(name) or [0] * length)]

    return _Form(0, states, sequences, listed("scan_input_axes", count), listed("scan_input_directions", count),
                 listed("scan_output_axes", rows), listed("scan_output_directions", rows))  # fmt: skip


def _loop(b: Builder, node: Node, grads: Gradients) -> Answer:
    """The `Scan` that goes back over a loop's iterations."""
    source = _there(node.bodies[0])
    form, wanted = _form(node, source), _wanted(b, node)
    own = source.inputs[: form.first * 2 + len(form.states) + len(form.sequences)]  # number and condition of a Loop
    state_names, elements = own[form.first * 2 :][: len(form.states)], own[form.first * 2 + len(form.states) :]
    body = _Body(b.graph, source)
    moving = [k for k, s in enumerate(form.states) if _is_float(b.graph.tensors[s])]
    wanted_elements = [k for k, s in enumerate(form.sequences) if b.wanted(s)]

    # What comes back: gradients of states, and of rows, an element at a time.
    seeds: dict[str, str] = {}
    state_seeds = {k: body.own(source.tensors[state_names[k]], f"gradient.{state_names[k]}", 0) for k in moving}
    for k, name in state_seeds.items():
        seeds[body.results[form.first + k]] = name
    row_seeds: dict[int, str] = {}
    for j, g in enumerate(grads[len(form.states) :]):
        if g is not None:
            result = body.results[form.first + len(form.states) + j]
            row_seeds[j] = body.own(source.tensors[result], f"gradient.{result}", 0)
            seeds[result] = row_seeds[j]
    wrt = [*(state_names[k] for k in moving), *(elements[k] for k in wanted_elements)]
    found = body.backward(seeds, [*wrt, *(c for c in wanted if c in body.graph.inputs)])
    sums = {c: body.own(b.graph.tensors[c], f"sum.{c}", 0) for c in wanted}
    for k in moving:
        body.give(found[state_names[k]])
    for c in wanted:
        body.give(body.builder.add(sums[c], found[c]) if c in found else sums[c])
    for k in wanted_elements:
        body.give(found[elements[k]])

    # What is read: kept states, elements of sequences, gradients of rows.
    needed = body.pruned()
    kept = [n for n in own[: len(own) - len(elements)] if n in needed]
    again = [k for k, name in enumerate(elements) if name in needed]
    if not kept and not again and not row_seeds:
        kept = [own[0]]  # it tells how many iterations there were
    stacks = _stacked(b, node, form, kept)
    arguments = [*state_seeds.values(), *sums.values(), *kept, *(elements[k] for k in again), *row_seeds.values()]
    captured = [i for i in body.graph.inputs if i in needed and i not in {*arguments, *own}]
    body.graph.inputs[:] = [*arguments, *captured]
    reversed_ = [
        *((stack, 0, 1) for stack in stacks),
        *((form.sequences[k], form.axes[k], 1 - form.back[k]) for k in again),
        *((grads[len(form.states) + j], form.row_axes[j], 1 - form.row_back[j]) for j in row_seeds),
    ]
    inputs = [
        *(grads[k] or b.zeros(form.states[k]) for k in moving), *(b.zeros(c) for c in wanted),
        *(str(name) for name, _, _ in reversed_),
    ]  # fmt: skip
    of = [*(form.states[k] for k in moving), *wanted, *(form.sequences[k] for k in wanted_elements)]
    outputs = [_like(b, name) for name in of]
    attrs = {
        "num_scan_inputs": len(reversed_),
        "scan_input_axes": [axis for _, axis, _ in reversed_], "scan_input_directions": [d for _, _, d in reversed_],
        "scan_output_axes": [form.axes[k] for k in wanted_elements],
        "scan_output_directions": [1 - form.back[k] for k in wanted_elements],
    }  # fmt: skip
    b.graph.nodes.append(Node(outputs[0], "Scan", inputs, outputs, attrs, DOMAIN, tuple(captured), None, (body.graph,)))
    made = iter(outputs)
    of_states = {k: next(made) for k in moving}
    of_captures = dict(zip(wanted, made))
    of_sequences = dict(zip(wanted_elements, outputs[len(moving) + len(wanted) :], strict=True))
    return [
        *[None] * (len(node.inputs) - len(form.states) - len(form.sequences)),
        *(of_states.get(k) for k in range(len(form.states))),
        *(of_sequences.get(k) for k in range(len(form.sequences))),
        *(of_captures.get(c) for c in node.captures),
    ]


def _is_float(tensor: Tensor) -> bool:
    return tensor.dtype is not None and tensor.dtype.is_float


def _stacked(b: Builder, node: Node, form: _Form, kept: Collection[str]) -> list[str]:
    """Let a loop return what its iterations begin with, by names of its body's inputs; the new results."""
    if not kept:
        return []
    body = _Body(b.graph, _there(node.bodies[0]))
    body.graph.outputs += body.results
    outputs = [*node.outputs, *(b.graph.fresh(f"{node.name}.unread") for _ in range(len(body.results) - form.first
                                                                                   - len(node.outputs)))]  # fmt: skip
    length = _length(b, form)
    new = []
    for name in kept:
        body.give(name)
        stack = b.graph.fresh(f"{node.name}.{name}.kept")
        t = body.graph.tensors[name]
        shape = None if length is None else (length, *(t.shape or ()))
        b.graph.tensors[stack] = Tensor(stack, None if shape is None else t.dtype, shape)
        new.append(stack)
    for name in outputs:
        b.graph.tensors.setdefault(name, Tensor(name, None, None))
    attrs = {k: v for k, v in node.attrs.items() if k != "body"}
    if node.op_type == "Scan":
        attrs["scan_output_axes"] = [*form.row_axes, *[0] * len(kept)]
        attrs["scan_output_directions"] = [*form.row_back, *[0] * len(kept)]
    made = Node(node.name, node.op_type, [*node.inputs], [*outputs, *new], attrs, DOMAIN, node.captures, None,
                (body.graph,))  # fmt: skip
    b.graph.nodes[next(k for k, n in enumerate(b.graph.nodes) if n is node)] = made
    return new


def _length(b: Builder, form: _Form) -> int | None:
    """How many iterations there are, where that is known."""
    for name, axis in zip(form.sequences, form.axes, strict=True):
        shape: Any = b.graph.tensors[name].shape
        if shape is not None:
            return int(shape[axis])
    return None
