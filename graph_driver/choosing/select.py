"""The implementation of every node of a graph, chosen together."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.choosing.candidates import considered
from polyc.graph_driver.choosing.solve import Option, Problem, Task, solve
from polyc.graph_driver.graph.aliases import is_alias
from polyc.graph_driver.graph.decisions import Considered, Selection
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.poly.target import Target

LAYOUT = "row-major"


def select(graph: Graph, target: Target, exact: bool = False, naive: bool = False) -> list[Selection]:
    """The best candidates: fewest deviations from the model's dtypes, fewest conversions, least cost.

    `exact` leaves out what rounds elsewhere than the operator's definition; `naive` takes for each node the
    plain translation of its operator (the baseline to compare with).
    """
    only_plain = (
        {"winograd2": "one-to-one baseline", "winograd4": "one-to-one baseline", "external": "one-to-one baseline"}
        if naive
        else {}
    )
    nodes = [n for n in graph.nodes if not is_alias(n)]
    found = [considered(graph, n, target, exact, only_plain) for n in nodes]
    tasks = tuple(_task(graph, k, n, c) for k, (n, c) in enumerate(zip(nodes, found, strict=True)))
    made = {o for t in tasks for o in t.outputs}
    outside = {i for t in tasks for i in t.inputs} - made
    formats = {n: (str(graph.tensors[n].dtype), LAYOUT) for n in (*made, *outside)}
    wanted = {o: formats[o] for o in graph.outputs if o in made}
    solution = solve(Problem(tasks, {n: formats[n] for n in outside}, wanted, {}))
    return [
        Selection(n.name, n.kind, tuple(n.outputs), solution.chosen[t.name].name, tuple(c))
        for n, t, c in zip(nodes, tasks, found, strict=True)
    ]


def _task(graph: Graph, number: int, node: Node, candidates: Sequence[Considered]) -> Task:
    """The host is no deviation of dtypes, but it has the last place: its cost is the largest."""
    inputs, outputs = tuple(dict.fromkeys(node.reads())), tuple(node.writes())
    wants = tuple((str(graph.tensors[n].dtype), LAYOUT) for n in inputs)
    gives = tuple((str(graph.tensors[n].dtype), LAYOUT) for n in outputs)
    options = tuple(Option(c.name, wants, gives, 0, c.cost) for c in candidates if c.cost is not None)
    return Task(f"{number}:{node.name}", inputs, outputs, options)
