"""The implementation of every node of a graph, chosen together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyc.graph_driver.ir import Graph, Node
from polyc.graph_driver.passes.parts import is_alias
from polyc.graph_driver.selection.candidates import Considered, considered
from polyc.graph_driver.selection.solve import Option, Problem, Task, solve
from polyc.poly.target import Target

LAYOUT = "row-major"


@dataclass(frozen=True)
class Selection:
    """What one node runs as, and everything that was considered for it."""

    node: str
    operator: str
    results: tuple[str, ...]
    chosen: str
    candidates: tuple[Considered, ...]

    def __str__(self) -> str:
        own = next(c for c in self.candidates if c.name == self.chosen)
        parts = [
            f"{c.name}: {c.refusal}" if c.cost is None else f"{c.name} {c.cost:,.0f}"
            for c in self.candidates if c is not own
        ]  # fmt: skip
        return f"{self.operator} '{self.node}': {own.name} {own.cost or 0:,.0f} cycles ({'; '.join(parts)})"


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
