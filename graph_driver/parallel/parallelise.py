"""`polyc.parallelise`: a model over several ranks, chosen by cost, proved by access relations, run by MPI."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.parallel.choose import Choice, Costs, choose
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.program import DONE, Group, Program, Sending, groups_of, program, sendings
from polyc.graph_driver.parallel.ways import Nodes, Way
from polyc.poly.errors import ArgumentError
from polyc.poly.installed import version

if TYPE_CHECKING:
    import onnx

    from polyc.graph_driver.running.model import Model

PACKAGES = ("polyc", "numpy", "onnx", "islpy", "llvmlite")
"""Their versions decide about programs and results, so they are the same on all ranks."""
GROUP_BYTES = 25 << 20
"""Sums of results (gradients) that one message makes: large enough that its latency is nothing (Li et al., PyTorch
Distributed, VLDB 2020, have this number)."""
Rule = Any
"""`only(node, ways) -> ways`: what is left of a node's ways."""


class Parallel:
    """A model over ranks: `choice.ways[k]` is how node k of `graph` runs. Call it on every rank with all inputs: it
    gives all results, on each rank."""

    def __init__(
        self, costs: Costs, choice: Choice, compile_options: Mapping[str, Any], group_bytes: int = GROUP_BYTES
    ) -> None:
        self.costs, self.choice, self._options = costs, choice, dict(compile_options)
        self.group_bytes = group_bytes
        self._models: dict[int, tuple[Program, Model]] = {}
        self._agreed = False
        self.also: dict[str, str] = {}  # further facts that all ranks must have alike

    @property
    def graph(self) -> Graph:
        """The model as a graph of whole tensors."""
        return self.costs.nodes.graph

    @property
    def ranks(self) -> int:
        """How many ranks it is for."""
        return self.costs.nodes.ranks

    @property
    def seconds(self) -> float:
        """The predicted time of a call."""
        return self.choice.seconds

    @cached_property
    def sendings(self) -> list[list[Sending]]:
        """The moves before each node, and behind the last."""
        return sendings(self.costs, self.choice.ways)

    def sent(self, rank: int | None = None) -> int:
        """Bytes that a rank sends in a call, or all ranks together."""
        grouped = {s for g in self.groups for s in g.members}
        moves = [s.move.sent for some in self.sendings[:-1] for s in some]
        moves += [s.move.sent for s in self.sendings[-1] if s not in grouped]
        moves += [g.move.sent for g in self.groups]
        return sum(sum(m) if rank is None else m[rank] for m in moves)

    @cached_property
    def groups(self) -> list[Group]:
        """The sums of results that one message makes each."""
        return groups_of(self.costs, self.sendings, self.group_bytes)

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape of the whole inputs, by name."""
        tensors = self.graph.tensors
        return {n: (str(tensors[n].dtype), tuple(tensors[n].shape or ())) for n in self.graph.inputs}

    def program(self, rank: int) -> Program:
        """The ONNX model of a rank."""
        return program(self.costs, self.choice.ways, rank, self.group_bytes)

    def compile(self, rank: int) -> tuple[Program, Model]:
        """A rank's model, compiled. Raises as `compile_model`."""
        if rank not in self._models:
            from polyc.graph_driver.compile_model import compile_model

            made = self.program(rank)
            self._models[rank] = (made, compile_model(made.model, **self._options))
        return self._models[rank]

    def facts(self) -> dict[str, str]:
        """What all ranks must have alike, by what it is called."""
        plan = "; ".join(map(str, self.choice.ways)) + f"; groups of {self.group_bytes} bytes"
        return facts_of(self.graph, plan) | self.also

    def __call__(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Run this rank's part; all ranks must call with the same inputs. Outputs named in `out` are written there.

        Raises:
            ArgumentError: inputs do not fit, or there are other ranks than the plan is for.
            RankError: ranks do not agree on the program, or one is gone.
        """
        from polyc.graph_driver.communication.ranks import world

        ranks = world()
        if ranks.size != self.ranks:
            raise ArgumentError(
                f"the model is for {self.ranks} ranks, but {ranks.size} run: start it by mpiexec -n {self.ranks}"
            )
        if not self._agreed:
            ranks.agree(self.facts())
            self._agreed = True
        made, model = self.compile(ranks.rank)
        missing = [n for n in self.graph.inputs if n not in inputs]
        if missing:
            raise ArgumentError(f"input '{missing[0]}' is missing")
        feeds = {}
        for name, (source, part) in made.feeds.items():
            value = np.asarray(inputs[source])
            wanted = self.graph.tensors[source].shape
            if value.shape != wanted:
                raise ArgumentError(f"input '{source}' has shape {value.shape}, the model is for {wanted}")
            feeds[name] = np.ascontiguousarray(value[tuple(slice(a, b) for a, b in part)])
        results = model(feeds, out)
        return {n: results[n] for n in made.outputs if n != DONE}

    def explain(self) -> str:
        """The plan: how each node runs, and each message with its bytes as a formula."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        network = self.costs.network
        yield (
            f"{self.graph.name} over p = {self.ranks} ranks: {self.seconds * 1e3:.3f} ms predicted, "
            f"{self.sent():,} bytes sent" + ("" if self.choice.proved else " (not proved to be the cheapest)")
        )
        grouped = {s for g in self.groups for s in g.members}
        for g in self.groups:
            names = ", ".join(f"'{s.tensor}'" for s in g.members)
            row = (sum(self.graph.tensors[s.tensor].size for s in g.members),)
            yield f"  one AllReduce of {len(g.members)}: {g.move.volume.text(row)} = {g.move.total:,} bytes; {names}"
        for number, moves in enumerate(self.sendings):
            for s in moves:
                if s.move.kind and s not in grouped:
                    time, shape = s.move.time(network) * 1e6, self.costs.nodes.shape(s.tensor)
                    yield (
                        f"    {s.move.kind} '{s.tensor}' ({s.have} -> {s.want}): "
                        f"{s.move.volume.text(shape)} = {s.move.total:,} bytes, {time:.1f} us"
                    )
            if number < len(self.graph.nodes):
                node, way = self.graph.nodes[number], self.choice.ways[number]
                yield f"  {node.kind} '{node.name}': {way}"


def facts_of(graph: Graph, plan: str) -> dict[str, str]:
    """What all ranks must have alike of a graph and the text of its plan, by what it is called."""
    tensors, weights = graph.tensors, hashlib.sha256()
    for name in sorted(n for n, t in tensors.items() if t.const is not None):
        weights.update(np.ascontiguousarray(tensors[name].const).tobytes())
    return {
        "the version of a package": ", ".join(f"{p} {version(p)}" for p in PACKAGES),
        "the shape of the inputs": ", ".join(str(tensors[n]) for n in graph.inputs),
        "the model": f"{graph.name}, {len(graph.nodes)} nodes: {graph}",
        "the weights of the model": weights.hexdigest(),
        "the plan": plan,
    }


def parallelise(
    model: str | Path | onnx.ModelProto | bytes,
    ranks: int,
    network: Network | str | float | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    only: Rule = None,
    group_bytes: int = GROUP_BYTES,
    **options: Any,
) -> Parallel:
    """Split a model over `ranks` ranks: the layout of every tensor that makes a call cheapest.

    Every rank has all inputs and gets all results. Any node may run on all ranks alike, or on parts; which parts are
    possible, and what they need of each other, follows from what the operators read
    (`polyc.graph_driver.parallel.ways`).

    Args:
        model: a path, a `ModelProto`, or its bytes; all sizes must be numbers.
        ranks: processes of `mpiexec -n ranks`.
        network: `Network`, bytes a second, or a text as `10 GB/s, 5 us`; it decides what is cheap.
        dims: values of symbolic sizes.
        shapes: concrete input shapes.
        only: `only(node, ways)` gives those of a node's ways that may be chosen (None: all).
        group_bytes: sums of results are joined to messages of this size.
        options: of `compile_model`, for the programs of the ranks.

    Raises:
        ModelError: as `compile_model`; a size is not given.
        ArgumentError: there is no such number of ranks or network.
    """
    if not isinstance(ranks, int) or ranks < 1:
        raise ArgumentError(f"ranks={ranks!r}: a model runs on 1 rank or more")
    return over_ranks(import_model(model, dims, shapes), ranks, network, only, group_bytes, **options)


def over_ranks(
    graph: Graph, ranks: int, network: Network | str | float | None = None, only: Rule = None,
    group_bytes: int = GROUP_BYTES, **options: Any,
) -> Parallel:  # fmt: skip
    """The same of a graph. Raises as `parallelise`."""
    graph.nodes = results_soon(graph)
    costs = Costs(Nodes(graph, ranks), Network.of(network))
    return Parallel(costs, choose(costs, ways_of(costs.nodes, only)), options, group_bytes)


def results_soon(graph: Graph) -> list[Node]:
    """The nodes with those that make nothing but results of the graph right behind what they read: messages with these
    results begin there."""
    results, makers = set(graph.outputs), graph.producers()
    place = {id(n): k for k, n in enumerate(graph.nodes)}

    def when(node: Node) -> tuple[int, int]:
        own = place[id(node)]
        if not set(node.writes()) <= results:
            return own, -1
        return max((place[id(makers[i])] for i in node.reads() if i in makers), default=own), own

    return sorted(graph.nodes, key=when)


def ways_of(nodes: Nodes, only: Rule = None) -> list[list[Way]]:
    """The ways of all nodes of a graph."""
    layouts = nodes.layouts()
    found = [nodes.ways(node, layouts) for node in nodes.graph.nodes]
    if only is not None:
        found = [_left(node, list(only(node, ways))) for node, ways in zip(nodes.graph.nodes, found, strict=True)]
    return found


def _left(node: Node, ways: list[Way]) -> list[Way]:
    if not ways:
        raise ArgumentError(f"only= leaves no way for {node.kind} '{node.name}'")
    return ways
