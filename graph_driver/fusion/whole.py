"""A model as one Scop: one union of domains and one schedule tree, that questions can be asked of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.graph_driver.fusion.joined import Cluster, joined_scop
from polyc.graph_driver.graph.aliases import is_alias, is_view
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.operators.pieces import Lookup, translate
from polyc.poly.access import accesses
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop


@dataclass(frozen=True)
class Whole:
    """`arrays`: the array of each tensor that is not a view; `nodes`: the node of each statement; `shapes` of tensors,
    which the arrays may have with dimensions joined."""

    scop: Scop
    arrays: Mapping[str, str]
    nodes: Mapping[str, Node]
    shapes: Mapping[str, Sequence[int]]

    def writers(self, array: str, elements: isl.Set) -> dict[str, isl.Set]:
        """The instances of each statement that write some elements of an array, in the order of the program."""
        found = {}
        for a in accesses(self.scop):
            if a.write and a.array == array:
                instances = a.map.intersect_range(elements.set_tuple_name(array)).domain()
                if not instances.is_empty():
                    found[a.stmt] = instances
        return found


def whole_model(graph: Graph, lookup: Lookup) -> Whole:
    """All nodes of a graph as one Scop in the order of the graph.

    Raises:
        ModelError: a node has no Scop; it is named, with the reason.
    """
    pieces = translate(graph, lookup)
    for p in pieces:
        if p.operator is None:
            raise ModelError(f"{p.node.kind} '{p.node.name}' has no loops: {p.reason}")
    strange = [n for n in graph.nodes if is_alias(n) and not is_view(n)]
    if strange:
        raise ModelError(f"'{strange[0].name}' shows parts of a tensor: leave out that pass (--disable parts)")
    if not pieces:
        raise ModelError("the model has no node that computes")
    views = [n for n in graph.nodes if is_view(n)]
    source = {v.outputs[0]: v.inputs[0] for v in views}
    outputs = []
    for name in graph.outputs:
        while name in source:
            name = source[name]
        outputs.append(name)
    made = {o for p in pieces for o in p.node.writes()}
    outputs = [o for o in dict.fromkeys(outputs) if o in made]
    scop, arrays, _ = joined_scop(Cluster(pieces, views), outputs)
    names = iter(scop.statements)
    nodes: dict[str, Node] = {}
    for p in pieces:  # statements stand in the order of the parts
        assert p.operator is not None
        nodes |= {next(names): p.node for _ in p.operator.scop.statements}
    return Whole(scop, arrays, nodes, {n: graph.tensors[n].shape or () for n in arrays})
