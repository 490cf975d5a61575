"""Pipelines: stages of a model on ranks, one behind the other, and micro-batches that follow each other through them.

A micro-batch is a part of the batch, and that every node may run on it alone is proved as for data parallel plans: a
micro-batch is a rank in time (`micro_batches.py`). The nodes are cut into stages of nearly equal time; tensors that a
later stage reads are sent by `Send` and `Recv` nodes of the stages' own programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx

from polyc.graph_driver.communication.running import run
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.inference.concrete import type_proto
from polyc.graph_driver.parallel.layouts import Split
from polyc.graph_driver.parallel.micro_batches import Batches, BatchWriter, Feeds, in_micro_batches
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.parallelise import facts_of
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    from polyc.graph_driver.running.model import Model

Turn = tuple[Literal["forward", "backward"], int]


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Turn]:
    """The order of a stage's work on micro-batches: as soon as the first one comes back, forward and backward in turn,
    so that a stage keeps the activations of at most `stages - stage` of them (1F1B: Narayanan et al., PipeDream, SOSP
    2019)."""
    warm = min(stages - stage - 1, micro_batches)
    order: list[Turn] = [("forward", k) for k in range(warm)]
    for k in range(micro_batches - warm):
        order += [("forward", warm + k), ("backward", k)]
    return order + [("backward", k) for k in range(micro_batches - warm, micro_batches)]


@dataclass(frozen=True)
class Crossing:
    """A tensor that stage `source` sends to stage `to` for each micro-batch, of so many bytes, under its own `tag`."""

    tensor: str
    source: int
    to: int
    nbytes: int
    tag: int


class Pipeline:
    """A model in stages, one for each rank of `mpiexec`. Call it on every rank with all inputs: it gives all results.

    `first[s]`: the number of the first node of stage s; `crossings`: what is sent.
    """

    def __init__(self, batches: Batches, stages: int, options: Mapping[str, Any]) -> None:
        self.batches, self.stages, self._options = batches, stages, dict(options)
        self.graph, self.micro_batches = batches.graph, batches.count
        nodes = range(len(self.graph.nodes) + 1)
        self.first = cut(batches.times, [leaving(batches, k) for k in nodes], stages, batches.costs.network)
        self.crossings = self._crossings()
        self._models: dict[int, tuple[Model, Feeds, list[str]]] = {}
        self._agreed = False

    def stage_of(self, number: int) -> int:
        """The stage of a node."""
        return sum(number >= f for f in self.first[1:])

    def seconds(self, stage: int) -> float:
        """The predicted time of a stage for one micro-batch."""
        ends = [*self.first[1:], len(self.graph.nodes)]
        return sum(self.batches.times[self.first[stage] : ends[stage]])

    def _crossings(self) -> list[Crossing]:
        read, made = readers(self.graph), list[Crossing]()
        for name, source in ((n, self.stage_of(k)) for n, k in self.batches.maker.items()):
            for to in sorted({self.stage_of(k) for k in read.get(name, ())} - {source}):
                made.append(Crossing(name, source, to, self.batches.bytes_of(name), len(made)))
        return made

    def sent(self, rank: int | None = None) -> int:
        """Bytes that a rank sends in a call, or all ranks: tensors to later stages, and results to all ranks."""
        total = sum(c.nbytes for c in self.crossings if rank in (None, c.source)) * self.micro_batches
        for name in self.graph.outputs:
            if rank in (None, self._owner(name)):
                total += self.graph.tensors[name].nbytes * (self.stages - 1)
        return int(total)

    def _owner(self, name: str) -> int:
        return self.stage_of(self.batches.maker[name])

    # ---- programs ----

    def program(self, stage: int) -> tuple[onnx.ModelProto, Feeds, list[str]]:
        """A stage's model of one micro-batch; what it is fed, by name: the input and its box for the first micro-batch;
        its results of the whole model."""
        graph, batches = self.graph, self.batches
        writer = BatchWriter(graph, self.micro_batches)
        writer.ranks = list(range(self.stages))
        for c in self.crossings:
            if c.to == stage:
                element = type_proto(graph.tensors[c.tensor]).tensor_type.elem_type
                name = writer.names[c.tensor, batches.layouts[c.tensor]] = writer.fresh(c.tensor)
                shape = list(batches.shape(c.tensor))
                writer.message("Recv", "", name, source=c.source, tag=c.tag, dtype=element, shape=shape)
        ends = [*self.first[1:], len(graph.nodes)]
        for number in range(self.first[stage], ends[stage]):
            writer.compute(graph.nodes[number], batches.choice.ways[number])
        for c in self.crossings:
            if c.source == stage:
                writer.message("Send", writer.part(c.tensor, batches.layouts[c.tensor]), "", to=c.to, tag=c.tag)
        results = [o for o in graph.outputs if self._owner(o) == stage]
        proto = writer.finished({o: writer.part(o, batches.layouts[o]) for o in results}, f"stage {stage}")
        return proto, dict(writer.feeds), results

    def compile(self, stage: int) -> tuple[Model, Feeds, list[str]]:
        """A stage's model, compiled; the rest as `program`."""
        if stage not in self._models:
            from polyc.graph_driver.compile_model import compile_model

            proto, feeds, results = self.program(stage)
            self._models[stage] = compile_model(proto, **self._options), feeds, results
        return self._models[stage]

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run this rank's stage on all micro-batches. All ranks call with the same inputs, and get all results.

        Raises:
            ArgumentError: an input is missing, or there are other ranks than stages.
            RankError: ranks do not agree on the program, or one is gone.
        """
        from polyc.graph_driver.communication.ranks import world

        ranks, graph = world(), self.graph
        if ranks.size != self.stages:
            raise ArgumentError(f"the pipeline has {self.stages} stages, but {ranks.size} ranks run")
        if not self._agreed:
            plan = f"stages from nodes {self.first}, {self.micro_batches} micro-batches"
            ranks.agree(facts_of(graph, plan))
            self._agreed = True
        model, feeds, results = self.compile(ranks.rank)
        made: dict[str, list[np.ndarray]] = {n: [] for n in results}
        for k in range(self.micro_batches):
            found = model(self.batches.fed(feeds, inputs, k))
            for name in results:
                made[name].append(found[name])
        everyone: dict[str, np.ndarray] = {}
        for name in graph.outputs:
            tensor = graph.tensors[name]
            assert tensor.dtype is not None
            whole = np.concatenate(made[name]) if name in made else np.empty(tensor.shape or (), tensor.dtype.np)
            into = np.empty_like(whole)
            attrs = {"ranks": list(range(self.stages)), "root": self._owner(name)}
            run("Broadcast", name, attrs, [np.ascontiguousarray(whole)], [into])
            everyone[name] = into
        return everyone


def readers(graph: Graph) -> dict[str, list[int]]:
    """The numbers of the nodes that read a tensor."""
    found: dict[str, list[int]] = {}
    for k, node in enumerate(graph.nodes):
        for name in node.reads():
            found.setdefault(name, []).append(k)
    return found


def leaving(batches: Batches, number: int, end: int | None = None) -> int:
    """Bytes of tensors that are made before a node and read from it on (before node `end`)."""
    read = readers(batches.graph)
    last = len(batches.graph.nodes) if end is None else end
    alive = [t for t, k in batches.maker.items() if k < number and any(number <= r < last for r in read.get(t, ()))]
    return sum(map(batches.bytes_of, alive))


def cut(times: Sequence[float], leaving: Sequence[int], stages: int, network: Network) -> list[int]:
    """Where stages begin so that the slowest is as quick as can be: its work, and the time to send what leaves it.

    Args:
        times: seconds of each node.
        leaving: bytes that cross between node k - 1 and node k.
        stages: how many; each has a node.
        network: what sends.
    """
    n = len(times)
    sums = [0.0, *accumulate(times)]

    def stage(i: int, j: int) -> float:
        return sums[j] - sums[i] + (network.time(1, leaving[j]) if j < n else 0.0)

    best: list[dict[int, tuple[float, list[int]]]] = [{0: (0.0, [])}]
    for s in range(1, stages + 1):
        row: dict[int, tuple[float, list[int]]] = {}
        for j in range(s, n - (stages - s) + 1):
            options = [(max(t, stage(i, j)), [*begin, i]) for i, (t, begin) in best[-1].items() if i < j]
            if options:
                row[j] = min(options)
        best.append(row)
    return best[-1][n][1]


def pipelined(
    model: str | Path | onnx.ModelProto | bytes,
    stages: int,
    micro_batches: int,
    network: Network | str | float | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    **options: Any,
) -> Pipeline:
    """A model as a pipeline of stages, one for each rank, for a batch that goes through in micro-batches.

    Args:
        model: a path, a `ModelProto`, or its bytes; the first axis of its inputs and results is the batch.
        stages: ranks of `mpiexec`.
        micro_batches: parts of the batch, of equal size.
        network, dims, shapes, options: as `polyc.parallelise`.

    Raises:
        ArgumentError: a node needs more than one micro-batch, the batch is no multiple, or there are too few nodes.
        ModelError: the file is broken, or a size is not given.
    """
    graph = import_model(model, dims, shapes)
    extents = {(graph.tensors[n].shape or (0,))[0] for n in graph.outputs}
    if len(extents) != 1:
        raise ArgumentError(f"results with first axes {sorted(extents)} are no {micro_batches} equal micro-batches")
    if not 1 <= stages <= len(graph.nodes):
        raise ArgumentError(f"{len(graph.nodes)} nodes are not {stages} stages")
    batches = in_micro_batches(graph, extents.pop(), micro_batches, network)
    whole = [o for o in graph.outputs if not isinstance(batches.layouts.get(o), Split)]
    if whole:
        raise ArgumentError(f"result '{whole[0]}' needs more than one micro-batch")
    return Pipeline(batches, stages, options)
