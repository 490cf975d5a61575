"""Groups in the order that needs the least memory."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.communication.operators import DOMAIN
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.aliases import is_alias, storage
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.memory.order import Item, best_order, peak_of

MOST_GROUPS = 500


def in_best_order(graph: Graph, groups: Sequence[Group]) -> list[Group]:
    """The same groups, reordered where that lowers the most bytes alive at once (noted in the graph)."""
    if any(n.domain == DOMAIN and n.op_type == "Start" for n in graph.nodes):
        return list(groups)  # messages begin where the program has them: later ones would hide nothing
    tensors = graph.tensors
    if len(groups) > MOST_GROUPS or any(not t.static or not isinstance(t.nbytes, int) for t in tensors.values()):
        return [*groups]  # too many to try; or sizes that a run decides: which order is best may depend on them
    root = {name: where for name, (where, _) in storage(graph).items()}
    callers = {root[n] for n in (*graph.inputs, *graph.outputs)}
    sizes = {r: int(tensors[r].nbytes) for r in set(root.values()) if tensors[r].const is None and r not in callers}
    items = _items(graph, groups, root)
    found = best_order(items, sizes)
    given = peak_of(items, sizes, range(len(items)))
    if found.peak < given:
        change = f"from {human(given)} to {human(found.peak)}"
        graph.notes.append(f"another order of the kernels lowers what is alive {change}")
    return [groups[k] for k in found.steps]


def _items(graph: Graph, groups: Sequence[Group], root: dict[str, str]) -> list[Item]:
    """Which groups must run before each, and the memories that it touches."""
    makers: dict[str, frozenset[int]] = {o: frozenset((k,)) for k, g in enumerate(groups) for o in g.outputs}
    for node in graph.nodes:  # views, parts and wholes are made by whoever makes what they show
        if is_alias(node):
            both = frozenset().union(*(makers.get(i, frozenset()) for i in node.inputs))
            makers |= {o: both for o in node.writes() if o not in makers}
    items = []
    for k, g in enumerate(groups):
        reads = {*g.inputs, *(c for n in g.nodes for c in n.captures)}
        before = frozenset().union(*(makers.get(i, frozenset()) for i in reads)) - {k}
        items.append(Item(before, frozenset(root[n] for n in (*reads, *g.outputs) if n in root)))
    return items
