"""From nodes to kernels: every group of nodes becomes one Scop, or one host step.

A group is one operator followed by pointwise operators over the same shape that only the
group itself needs in between ("epilogue"): the whole region has a single result, so the
values inside never reach memory outside of the kernel. Because nothing else leaves the
region it is convex, and running it where its last node stood is always in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graph_driver.ir import Graph, Node
from graph_driver.operators.context import Builder, NodeContext, OperatorScop, TensorInfo, Unsupported
from graph_driver.passes.views import is_view
from graph_driver.reshaping import array_shape, over
from graph_driver.wording import one_line
from poly import json_io
from poly.compose import compose
from poly.errors import PolycError
from poly.scop import Scop

MAX_EPILOGUE = 24  # nodes joined to one producer
Lookup = Callable[[str, str], Builder | None]


@dataclass(frozen=True)
class Group:
    """Nodes that run as one step.

    `inputs` are tensors in the order of `scop.args`, `outputs` in the order of
    `scop.results`; `arrays` are the names of both in the Scop. `text` is the Scop as canonical
    JSON and `key` its hash: equal keys, equal code. Without a key the (single) node runs on
    the host because of `reason`; a group from the cache has a key and no Scop.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scop: Scop | None = None
    text: str = ""
    key: str = ""
    reason: str = ""
    arrays: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The operators, as `Conv+Add+Relu`."""
        return "+".join(n.kind for n in self.nodes)


@dataclass(frozen=True)
class Piece:
    """One node translated: its Scop, or why there is none."""

    node: Node
    operator: OperatorScop | None
    reason: str = ""
    context: NodeContext | None = None
    builder: Builder | None = None


def translate(graph: Graph, lookup: Lookup) -> list[Piece]:
    """Each node (views excepted) as a Scop where the library has one."""
    return [_translate_one(graph, n, lookup) for n in graph.nodes if not is_view(n)]


def _translate_one(graph: Graph, node: Node, lookup: Lookup) -> Piece:
    tensors = [graph.tensors[n] for n in (*node.reads(), *node.writes())]
    unknown = [t.name for t in tensors if not t.static]
    if unknown:
        return Piece(node, None, f"the shape or type of '{unknown[0]}' is only known at run time")
    if node.captures:
        return Piece(node, None, "control flow with a condition or count that is not constant")
    empty = [t.name for t in tensors if t.size == 0 and t.const is None]  # an empty constant stands for "absent"
    if empty:
        return Piece(node, None, f"'{empty[0]}' has no elements")
    gap = _absent_before_present(node)
    if gap is not None:
        return Piece(node, None, f"its output {gap} is absent, a later one is not")
    builder = lookup(node.domain, node.op_type)
    if builder is None:
        return Piece(node, None, "no operator in the library yet")
    context = NodeContext(
        node.op_type,
        node.domain,
        graph.opsets.get(node.domain, 1),
        node.attrs,
        tuple(_info(graph, i) if i else None for i in node.inputs),
        tuple(_info(graph, o) for o in node.writes()),
    )
    try:
        return Piece(node, builder(context), "", context, builder)
    except Unsupported as error:
        return Piece(node, None, str(error))
    except Exception as error:  # a bug of one builder costs one node, and the report says so
        return Piece(node, None, f"the library failed: {type(error).__name__}: {one_line(error)}")


def _absent_before_present(node: Node) -> int | None:
    """Position of an absent output with a present one after it; recurrent builders know a missing first one."""
    last = max((k for k, o in enumerate(node.outputs) if o), default=0)
    first = 1 if node.op_type in ("LSTM", "GRU", "RNN") else 0
    return next((k for k in range(first, last) if not node.outputs[k]), None)


def _info(graph: Graph, name: str) -> TensorInfo:
    t = graph.tensors[name]
    assert t.dtype is not None and t.shape is not None
    return TensorInfo(name, t.dtype, t.shape, t.const)


def form_groups(graph: Graph, pieces: Sequence[Piece], fuse: bool = True) -> list[Group]:
    """Groups in execution order: each at the place of its last node."""
    by_node = {id(p.node): p for p in pieces}
    place = {id(n): k for k, n in enumerate(graph.nodes)}
    taken: set[int] = set()
    found: list[tuple[int, Group]] = []
    consumers = graph.consumers()
    for piece in pieces:
        if id(piece.node) in taken:
            continue
        members = [piece]
        if fuse and piece.operator is not None:
            members += _epilogue(graph, piece, by_node, consumers, taken, place)
        try:
            group = make_group(graph, members)
        except PolycError as error:
            if len(members) == 1:
                raise
            graph.notes.append(f"not joined: {one_line(error)}")
            members = [piece]
            group = make_group(graph, members)
        taken |= {id(m.node) for m in members}
        found.append((place[id(members[-1].node)], group))
    return [g for _, g in sorted(found, key=lambda item: item[0])]


def _epilogue(
    graph: Graph, head: Piece, by_node: dict[int, Piece], consumers: dict[str, list[Node]], taken: set[int],
    place: dict[int, int],
) -> list[Piece]:
    """The longest run of pointwise nodes after `head` that leaves one live result."""
    results = list(head.node.writes())
    if len(results) != 1:
        return []
    assert head.operator is not None
    stored = array_shape(head.operator, head.operator.outputs[0])
    inside = {id(head.node)}
    made = [results[0]]
    joined: list[Piece] = []
    best = 0
    while len(joined) < MAX_EPILOGUE and stored is not None:
        readers = {id(n): n for name in made for n in consumers.get(name, []) if id(n) not in inside}
        ready = [n for n in readers.values() if _joins(graph, n, by_node, taken, results[0])]
        if not ready:
            break
        node = min(ready, key=lambda n: place[id(n)])
        piece = _stored_as(by_node[id(node)], stored, made)
        if piece is None:
            break
        inside.add(id(node))
        joined.append(piece)
        made.append(next(node.writes()))
        live = [m for m in made if m in graph.outputs or any(id(n) not in inside for n in consumers.get(m, []))]
        if live == [made[-1]]:
            best = len(joined)
    return joined[:best]


def _stored_as(piece: Piece, shape: tuple[int, ...], made: Sequence[str]) -> Piece | None:
    """The pointwise piece with its result and the operands in `made` stored as `shape`."""
    assert piece.context is not None and piece.builder is not None
    operator = piece.operator
    for attempt in range(2):
        if operator is not None and _fits(piece.node, operator, shape, made):
            return replace(piece, operator=operator)
        context = over(piece.context, shape)
        if context is None or attempt:
            return None
        try:
            operator = piece.builder(context)
        except Unsupported:
            return None
    return None


def _fits(node: Node, operator: OperatorScop, shape: tuple[int, ...], made: Sequence[str]) -> bool:
    """Whether the Scop's arrays for the result and for tensors of the group have `shape`."""
    names = [*operator.outputs, *(a for position, a in operator.inputs if node.inputs[position] in made)]
    return all(array_shape(operator, a) == shape for a in names)


def _joins(graph: Graph, node: Node, by_node: dict[int, Piece], taken: set[int], first: str) -> bool:
    piece = by_node.get(id(node))
    if piece is None or piece.operator is None or not piece.operator.pointwise or id(node) in taken:
        return False
    results = list(node.writes())
    return len(results) == 1 and graph.tensors[results[0]].shape == graph.tensors[first].shape


def make_group(graph: Graph, members: Sequence[Piece]) -> Group:
    """One group of the members in order (a single host node, or nodes with Scops)."""
    nodes = tuple(m.node for m in members)
    if len(members) == 1 and members[0].operator is None:
        node = members[0].node
        return Group(nodes, tuple(node.reads()), tuple(node.writes()), reason=members[0].reason)
    made = {o for n in nodes for o in n.writes()}
    alias: dict[str, str] = {}
    inputs: list[str] = []
    for m in members:
        assert m.operator is not None
        for position, _ in m.operator.inputs:
            name = m.node.inputs[position]
            if name not in alias and name not in made:
                alias[name] = f"x{len(inputs)}"
                inputs.append(name)
    outputs = tuple(nodes[-1].writes())
    alias |= {name: f"y{k}" for k, name in enumerate(outputs)}
    for name in (o for n in nodes for o in n.writes()):
        alias.setdefault(name, f"t{len(alias)}")
    parts = [(m.operator.scop, _wiring(m, alias)) for m in members if m.operator is not None]
    name = "_".join(n.op_type.lower() for n in nodes[:4]) + ("_etc" if len(nodes) > 4 else "")
    try:
        scop = compose(name, parts, [alias[i] for i in inputs], [alias[o] for o in outputs])
    except PolycError as error:
        labels = "+".join(n.kind for n in nodes)
        raise type(error)(f"cannot join {labels} at '{nodes[0].name}': {error}") from error
    text = json_io.dumps(scop)
    order = {alias[n]: n for n in (*inputs, *outputs)}
    key = hashlib.sha256(text.encode()).hexdigest()
    args, results = tuple(order[a] for a in scop.args), tuple(order[r] for r in scop.results)
    return Group(nodes, args, results, scop, text, key, arrays=(*scop.args, *scop.results))


def _wiring(piece: Piece, alias: dict[str, str]) -> dict[str, str]:
    assert piece.operator is not None
    wiring = {argument: alias[piece.node.inputs[position]] for position, argument in piece.operator.inputs}
    wiring |= dict(zip(piece.operator.outputs, (alias[o] for o in piece.node.writes()), strict=True))
    return wiring


def split(graph: Graph, group: Group, pieces: Sequence[Piece]) -> list[Group]:
    """The group's nodes as groups of their own (used when the joined Scop cannot be compiled)."""
    wanted = {id(n) for n in group.nodes}
    return [make_group(graph, [p]) for p in pieces if id(p.node) in wanted]


def on_host(group: Group, reason: str) -> Group:
    """A single-node group that runs on the host after all."""
    (node,) = group.nodes
    return Group(group.nodes, tuple(node.reads()), tuple(node.writes()), reason=reason)
