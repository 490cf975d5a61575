"""The graph run after every pass: which pass changes the outputs, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.checking.check import compare
from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.passes.manager import Pass, PassRecord, run
from polyc.poly.records import dataclass
from polyc.poly.target import Target

if TYPE_CHECKING:
    from polyc.graph_driver.backends.protocol import Platform
    from polyc.graph_driver.options import CompileOptions

Evaluate = Callable[[Graph], Mapping[str, Any]]


@dataclass(frozen=True)
class Stage:
    """The outputs after one run of one pass. `error` is relative to the outputs before that pass,
    `total` to those of the graph as imported; `broken` says why the graph has none."""

    name: str
    did: str
    nodes: int
    error: float
    total: float
    broken: str = ""

    def __str__(self) -> str:
        if self.broken:
            return f"{self.name:12s} {self.broken}"
        return (
            f"{self.name:12s} {self.nodes:5d} nodes, changed by {self.error:.1e}, in all {self.total:.1e}  ({self.did})"
        )


@dataclass(frozen=True)
class Verdict:
    """All stages, and the first one that changes an output by more than the tolerance (None: no one does)."""

    stages: tuple[Stage, ...]
    guilty: str | None

    def __str__(self) -> str:
        last = "no pass changes the outputs" if self.guilty is None else f"pass {self.guilty} changes the outputs"
        return "\n".join([*map(str, self.stages), last])


def differential(
    graph: Graph, passes: Sequence[Pass], target: Target | None, evaluate: Evaluate, tolerance: float
) -> Verdict:
    """Run `passes` on `graph` and `evaluate` a copy of it before them and after each that did something.

    `evaluate` gives the outputs of a graph. A pass that breaks the graph's rules, or makes a graph that
    cannot be evaluated, is guilty too.
    """
    first = last = evaluate(copied(graph))
    stages: list[Stage] = []

    def watch(record: PassRecord, now: Graph) -> None:
        nonlocal last
        did = str(record).partition(": ")[2]
        try:
            found = evaluate(copied(now))
        except Exception as why:  # whatever a broken graph leads to: the pass is named, the search ends
            stages.append(Stage(record.name, did, len(now.nodes), 0.0, 0.0, f"cannot be run: {why}"))
            raise _Found(record.name) from why
        error, total = _largest(found, last), _largest(found, first)
        stages.append(Stage(record.name, did, len(now.nodes), error, total))
        last = found
        if error > tolerance:
            raise _Found(record.name)

    try:
        run(graph, passes, target, watch)
    except _Found as found:
        return Verdict(tuple(stages), found.name)
    except GraphError as error:
        name = str(error).removeprefix("pass ").partition(":")[0]
        return Verdict((*stages, Stage(name, "", 0, 0.0, 0.0, f"breaks the graph: {error}")), name)
    return Verdict(tuple(stages), None)


class _Found(Exception):
    """Ends the run of the passes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def copied(graph: Graph) -> Graph:
    """A graph that passes may change without changing `graph` (values of constants are shared)."""
    nodes = [replace(n, inputs=[*n.inputs], outputs=[*n.outputs], attrs=dict(n.attrs)) for n in graph.nodes]
    return replace(
        graph, nodes=nodes, tensors=dict(graph.tensors), inputs=[*graph.inputs], outputs=[*graph.outputs],
        notes=[], decisions=[],
    )  # fmt: skip


def _largest(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    return max((d.relative for d in compare(dict(found), dict(expected))), default=0.0)


def compiled_outputs(platform: Platform, options: CompileOptions, inputs: Mapping[str, Any]) -> Evaluate:
    """Compile a graph as it stands, without any pass, and run it on `inputs`."""
    from polyc.graph_driver.compiling.from_source import compile_graph

    as_it_stands = replace(options.as_given(), passes=())

    def evaluate(graph: Graph) -> Mapping[str, Any]:
        return compile_graph(graph, platform, as_it_stands, Report(platform.name, platform.threads))(inputs)

    return evaluate
