"""A graph as it was, for another attempt at its groups."""

from __future__ import annotations

from dataclasses import replace

from polyc.graph_driver.graph.decisions import Decision, Overwriting, Selection
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.poly.records import dataclass


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What forming groups may change."""

    nodes: tuple[Node, ...]
    tensors: dict[str, Tensor]
    notes: tuple[str, ...]
    decisions: tuple[Decision | Overwriting, ...]
    selections: tuple[Selection, ...]

    @staticmethod
    def of(graph: Graph) -> Snapshot:
        """The graph as it is now."""
        return Snapshot(
            tuple(_copied(n) for n in graph.nodes), dict(graph.tensors), tuple(graph.notes), tuple(graph.decisions),
            tuple(graph.selections),
        )  # fmt: skip

    def restore(self, graph: Graph) -> None:
        """Make the graph what it was."""
        graph.nodes = [_copied(n) for n in self.nodes]
        graph.tensors = dict(self.tensors)
        graph.notes[:], graph.decisions[:], graph.selections[:] = self.notes, self.decisions, self.selections
        graph.checked.clear()
        graph.sound.clear()


def _copied(node: Node) -> Node:
    return replace(node, inputs=[*node.inputs], outputs=[*node.outputs], attrs=dict(node.attrs))
