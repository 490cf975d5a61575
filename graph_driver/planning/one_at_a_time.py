"""What a model costs without a compiler: each node a call of its own, as eager mode of a framework runs it."""

from __future__ import annotations

from polyc.graph_driver import memory
from polyc.graph_driver.graph.aliases import RESHAPING
from polyc.graph_driver.graph.ir import Graph


def one_at_a_time(graph: Graph) -> tuple[int, int]:
    """Calls of operators and bytes at the peak, if nodes run in the graph's order and each result is a tensor of its
    own until its last reader is done. Reshapes are views: no call, and no memory. Inputs, weights and outputs are not
    counted, as they are not in the arena of a compiled model. Both 0: not every size is a number.
    """
    held: dict[str, str] = {}  # the tensor whose memory a view shows
    born: dict[str, int] = {}
    dies: dict[str, int] = {}
    calls = 0
    for k, node in enumerate(graph.nodes):
        for name in node.reads():
            name = held.get(name, name)
            if name in dies:
                dies[name] = k
        if node.op_type in RESHAPING and not node.domain:
            held[node.outputs[0]] = held.get(node.inputs[0], node.inputs[0])
            continue
        calls += 1
        for name in node.writes():
            born[name] = dies[name] = k
    outside = {held.get(name, name) for name in graph.outputs}
    sizes = {}
    for name in born:
        tensor = graph.tensors[name]
        if not tensor.static or not isinstance(tensor.nbytes, int):
            return 0, 0
        sizes[name] = tensor.nbytes
    lives = [memory.Lifetime(n, sizes[n], born[n], dies[n]) for n in born if n not in outside]
    return calls, memory.lower_bound(lives)
