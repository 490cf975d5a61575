"""The first program of the tier `progressive`: NumPy runs all nodes that it is quick for, the others have kernels.

It is a program as any other, with a plan and an arena; only its nodes are not joined, and most of them are steps of the
host. Of the graph passes those run that leave less work to NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.fusion.joined import Cluster, Group, make_group
from polyc.graph_driver.graph.aliases import is_alias
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.pieces import Piece, translate_one
from polyc.graph_driver.passes.manager import Pass

PASSES = frozenset({"identities", "dead-code", "constants", "affine", "views"})
"""Graph passes that pay before one run on NumPy."""

BY_NUMPY = "NumPy computes it"
"""Why a node of the first program that has loops runs on the host."""

CHOOSES = frozenset({"Gather"})
"""Quick operators whose indices may lie outside: NumPy knows no nearest element."""


def quick_passes(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """Those of `passes` that the first program has."""
    return tuple(p for p in passes if p.name in PASSES)


def first_groups(graph: Graph, checks: bool) -> tuple[list[Piece], list[Group]]:
    """A group for each node that is work, in the order of the graph. `checks`: indices outside are errors."""
    pieces, found = [], []
    for n in graph.nodes:
        if is_alias(n):
            continue
        if _by_numpy(graph, n, checks):
            found.append(Group((n,), tuple(n.reads()), tuple(n.writes()), reason=BY_NUMPY))
        else:
            pieces.append(translate_one(graph, n, lookup))
            found.append(make_group(Cluster([pieces[-1]])))
    return pieces, found


def _by_numpy(graph: Graph, node: Node, checks: bool) -> bool:
    """Whether NumPy runs a node of the first program although it may have loops."""
    from polyc.graph_driver.host.vectorised import is_quick

    if node.bodies or node.captures or (not checks and node.op_type in CHOOSES):
        return False
    if "broadcast" in node.attrs:  # of opsets before 7, which onnx.reference does not know
        return False
    names = [*node.reads(), *node.writes()]
    dtypes = {t.dtype.name if t.dtype is not None else "" for t in (graph.tensors[n] for n in names)}
    return is_quick(node.op_type, node.domain, len(list(node.writes())), dtypes)
