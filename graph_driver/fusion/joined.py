"""A group: nodes that run as one step, composed into one Scop (or one host operator)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from polyc.graph_driver.fusion.reshaping import array_shape, matching
from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.external import call_of
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.graph.size import Size
from polyc.graph_driver.operators.pieces import Piece
from polyc.poly import json_io
from polyc.poly.cache import Made, per_scop
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass
from polyc.poly.rewriting.compose import compose
from polyc.poly.rewriting.forward import forward
from polyc.poly.rewriting.panels import stored_in_order
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.rewriting.reshape import reshaped
from polyc.poly.rewriting.sinking import sunk
from polyc.poly.rewriting.stored import Layout
from polyc.poly.scop import Scop


@dataclass(frozen=True)
class Group:
    """Nodes that run as one step.

    `inputs` are tensors in the order of `scop.args`, `outputs` in the order of
    `scop.results`; `arrays` are the names of both in the Scop. `text` is the Scop as canonical
    JSON and `key` its hash: equal keys, equal code. Without a key the (single) node runs on
    the host because of `reason`; a group from the cache has a key and no Scop. `inplace`
    has pairs (output, input): the output is written over the input and has no array. `first_rows`: parameters of the
    Scop that are no sizes but numbers of this group (`polyc.graph_driver.fusion.first_rows`).
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scop: Scop | None = None
    text: str = ""
    key: str = ""
    reason: str = ""
    arrays: tuple[str, ...] = ()
    inplace: tuple[tuple[str, str], ...] = ()
    first_rows: tuple[tuple[str, int], ...] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """The outputs that have an array of their own."""
        return tuple(o for o in self.outputs if o not in dict(self.inplace))

    @property
    def in_python(self) -> bool:
        """Whether its node runs on the host or is control flow."""
        return not self.key and call_of(self.nodes[0]) is None

    @property
    def label(self) -> str:
        """The operators, as `Conv+Add+Relu`."""
        return "+".join(n.kind for n in self.nodes if not is_view(n))


ON_CPU = "cpu"
"""What keys of groups begin with whose kernels are those of the CPU beside another machine: a Scop may run on both."""


def on_cpu(group: Group) -> Group:
    """The group as one whose kernel is the CPU's."""
    return group if is_on_cpu(group) else replace(group, key=ON_CPU + group.key)


def is_on_cpu(group: Group) -> bool:
    """Whether its kernel is that of the CPU beside."""
    return group.key.startswith(ON_CPU)


@dataclass
class Cluster:
    """Nodes that are to become one group; `members` run in order and the last one has the results.

    Inside, a member may read a view (a node of `views`) of what another member makes.
    Tensors in `forwarded` are computed where they are read; those in `panels` are local
    arrays stored by a layout. All others are left to the scheduler.
    """

    members: list[Piece]
    views: list[Node] = field(default_factory=list)
    forwarded: list[str] = field(default_factory=list)
    panels: dict[str, Layout] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """In an order in which they can run: each view right after what it looks at."""
        out: list[Node] = []
        waiting = list(self.views)
        for m in self.members:
            out.append(m.node)
            made = {o for n in out for o in n.writes()}
            while ready := [v for v in waiting if v.inputs[0] in made]:
                out += ready
                made |= {v.outputs[0] for v in ready}
                waiting = [v for v in waiting if v not in ready]
        return tuple(out)


def make_group(cluster: Cluster) -> Group:
    """One group of a cluster (a single host node, or nodes with Scops).

    Raises:
        PolycError: the Scops do not fit together.
    """
    members = cluster.members
    if len(members) == 1 and members[0].operator is None:
        node = members[0].node
        return Group((node,), tuple(node.reads()), tuple(node.writes()), reason=members[0].reason)
    nodes = cluster.nodes
    scop, alias, inputs = composed(cluster)
    outputs = tuple(members[-1].node.writes())
    text, key = text_of(scop)
    order = {alias[n]: n for n in (*inputs, *outputs)}
    args, results = tuple(order[a] for a in scop.args), tuple(order[r] for r in scop.results)
    return Group(nodes, args, results, scop, text, key, arrays=(*scop.args, *scop.results))


@per_scop
def text_of(scop: Scop) -> tuple[str, str]:
    """A Scop as canonical JSON, and the hash of that."""
    text = json_io.dumps(scop)
    return text, hashlib.sha256(text.encode()).hexdigest()


_JOINED: Made[Scop] = Made(512)
"""Networks repeat their blocks: nodes of equal form share a Scop, so equal groups are composed once."""


def composed(cluster: Cluster) -> tuple[Scop, dict[str, str], list[str]]:
    """The cluster's Scop as it is compiled, array names by tensor, and the tensors that come from outside.

    Raises:
        PolycError: the Scops do not fit together.
    """
    scop, alias, inputs = joined_scop(cluster)
    for name in cluster.forwarded:
        array = alias[name]
        scop = _JOINED.of([scop], ("forward", array), partial(forward, scop, array))
    scop = _JOINED.of([scop], "sunk", partial(sunk, scop))
    for name, layout in cluster.panels.items():
        scop = stored_in_order(relayout(scop, alias[name], layout), alias[name], layout)
    return scop, alias, inputs


def joined_scop(cluster: Cluster, outputs: Sequence[str] = ()) -> tuple[Scop, dict[str, str], list[str]]:
    """The members' Scops one after another, array names by tensor, and the tensors that come from outside.

    `outputs` are the tensors that are results (none given: those of the last member).

    Raises:
        PolycError: the Scops do not fit together.
    """
    members = [m for m in cluster.members if m.operator is not None]
    source = {v.outputs[0]: v.inputs[0] for v in cluster.views}
    made = {o for m in members for o in m.node.writes()}
    alias: dict[str, str] = {}
    inputs: list[str] = []
    for m in members:
        assert m.operator is not None
        for position, _ in m.operator.inputs:
            name = m.node.inputs[position]
            if name not in alias and name not in made and name not in source:
                alias[name] = f"x{len(inputs)}"
                inputs.append(name)
    outputs = tuple(outputs or members[-1].node.writes())
    alias |= {name: f"y{k}" for k, name in enumerate(outputs)}
    for name in (o for m in members for o in m.node.writes()):
        alias.setdefault(name, f"t{len(alias)}")
    stored: dict[str, tuple[Any, ...]] = {}
    parts = []
    for m in members:
        assert m.operator is not None
        scop = m.operator.scop
        wiring = dict(zip(m.operator.outputs, (alias[o] for o in m.node.writes()), strict=True))
        for position, argument in m.operator.inputs:
            name = m.node.inputs[position]
            name = _behind(source, name)
            if name in stored and stored[name] != array_shape(m.operator, argument):
                seen = array_shape(m.operator, argument)
                asked = ("reshaped", argument, stored[name])
                scop = _JOINED.of([scop], asked, partial(_viewed, scop, argument, seen, stored[name]))
            wiring[argument] = alias[name]
        parts.append((scop, wiring))
        for array, o in zip(m.operator.outputs, m.node.writes(), strict=True):
            shape = array_shape(m.operator, array)
            if shape is not None:
                stored[o] = shape
    kinds = [m.node.op_type.lower() for m in members]
    name = "_".join(kinds[:4]) + ("_etc" if len(kinds) > 4 else "")
    args, results = tuple(alias[i] for i in inputs), tuple(alias[o] for o in outputs)
    scops, wirings = [scop for scop, _ in parts], tuple(tuple(wiring.items()) for _, wiring in parts)
    try:
        whole = _JOINED.of(scops, (name, wirings, args, results), partial(compose, name, parts, args, results))
        return whole, alias, inputs
    except PolycError as error:
        labels = "+".join(m.node.kind for m in members)
        raise type(error)(f"cannot join {labels} at '{members[0].node.name}': {error}") from error


def _viewed(scop: Scop, array: str, seen: tuple[Any, ...] | None, stored: tuple[Any, ...]) -> Scop:
    """The Scop with an argument, which it sees in one shape, in the shape that it is stored in."""
    if seen is None or all(isinstance(e, int) for e in (*seen, *stored)):
        return reshaped(scop, array, stored)
    shape = [e.expr if isinstance(e, Size) else int(e) for e in stored]
    return reshaped(scop, array, shape, matching(seen, stored))


def _behind(source: Mapping[str, str], name: str) -> str:
    """The tensor whose memory a view shows."""
    while name in source:
        name = source[name]
    return name


def split(group: Group, pieces: Sequence[Piece]) -> list[Group]:
    """The group's nodes as groups of their own (used when the joined Scop cannot be compiled)."""
    wanted = {id(n) for n in group.nodes}
    return [make_group(Cluster([p])) for p in pieces if id(p.node) in wanted]


def on_host(group: Group, reason: str) -> Group:
    """A single-node group that runs on the host after all."""
    (node,) = group.nodes
    return Group(group.nodes, tuple(node.reads()), tuple(node.writes()), reason=reason)
