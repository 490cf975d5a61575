"""Which nodes of a model in two types of numbers have which: fewest in the type not asked for, then fewest casts.

A model that is asked for in f16 has nodes that stay in f32, and casts where one kind meets the other. Nodes that
compute have the type that is asked for wherever they may. Those that only move elements deviate in neither type: what
is moved between two nodes in f32 stays so, and parts of a whole are cast once they are together. Of two choices with
as many casts that is taken which moves fewer bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from polyc.graph_driver.choosing.solve import Option, Problem, Solution, Task, solve_in_parts
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.poly.dtypes import DType

MOVING = frozenset(
    ("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape",
     "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze")
)  # fmt: skip
"""Operators whose results hold elements of their operands and nothing else."""
ASKED, OTHER = "asked", "other"  # names of options


def typed_problem(
    graph: Graph, source: DType, to: DType, ports: Sequence[Sequence[str]], held: Sequence[bool]
) -> Problem:
    """The choice of types as a problem for the solver.

    Args:
        graph: its nodes in execution order.
        source: the type of the model, that of its inputs and outputs.
        to: the type that is asked for.
        ports: for each node the tensors of type `source` that may have the other together; none where it may not.
        held: for each node whether it stays in `source` by the user's wish.
    """
    counts = {n: _elements(graph, n) for node in graph.nodes for n in (*node.reads(), *node.writes())}
    found = {n for n in counts if graph.tensors[n].dtype == source and graph.tensors[n].const is None}
    tasks = tuple(
        _task(k, node, source, to, frozenset(ports[k]), held[k], {n: c for n, c in counts.items() if n in found})
        for k, node in enumerate(graph.nodes)
    )
    made = {o for t in tasks for o in t.outputs}
    given = {n: (source.name, "") for n in sorted(found - made)}
    wanted = {n: (source.name, "") for n in graph.outputs if n in found}
    return Problem(tasks, given, wanted, {n: counts[n] * float(source.bytes + to.bytes) for n in found})


def choose_types(
    graph: Graph, source: DType, to: DType, ports: Sequence[Sequence[str]], held: Sequence[bool]
) -> tuple[list[bool], Solution]:
    """For each node whether it gets the type `to`, and the solution that says so. Arguments as `typed_problem`."""
    problem = typed_problem(graph, source, to, ports, held)
    solution = solve_in_parts(problem)
    return [solution.chosen[t.name].name == ASKED for t in problem.tasks], solution


def _task(
    number: int, node: Node, source: DType, to: DType, ports: frozenset[str], held: bool, counts: Mapping[str, float]
) -> Task:
    """A node: it has the type asked for, if it may; else it deviates, if it computes with `source` at all."""
    inputs = tuple(dict.fromkeys(n for n in node.reads() if n in counts))
    outputs = tuple(n for n in node.writes() if n in counts)

    def option(name: str, narrow: frozenset[str], deviations: int) -> Option:
        formats = {n: (to if n in narrow else source) for n in (*inputs, *outputs)}
        wants, gives = (tuple((formats[n].name, "") for n in names) for names in (inputs, outputs))
        return Option(name, wants, gives, deviations, sum(counts[n] * t.bytes for n, t in formats.items()))

    moves = node.op_type in MOVING and not node.domain
    wide = option(OTHER, frozenset(), int(bool(outputs) and node.op_type != "Cast" and (held or not moves)))
    own = ports & {*inputs, *outputs}
    return Task(str(number), inputs, outputs, (option(ASKED, own, 0), wide) if ports and not held else (wide,))


def _elements(graph: Graph, name: str) -> float:
    """Elements of a tensor; extents that a run decides count as one."""
    return float(prod(n if isinstance(n, int) else 1 for n in graph.tensors[name].shape or ()))
