"""Pipelines: stages of a model on ranks, one behind the other, and micro-batches that follow each other through them.

A micro-batch is a part of the batch, and that every node may run on it alone is proved as for data parallel plans: a
micro-batch is a rank in time (`ways.py`). The nodes are cut into stages of nearly equal time; tensors that a later
stage reads are sent by `Send` and `Recv` nodes of the stages' own programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
from onnx import helper, numpy_helper

from polyc.graph_driver.communication.operators import DOMAIN, VERSION
from polyc.graph_driver.communication.running import run
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.inference.concrete import type_proto
from polyc.graph_driver.parallel.choose import Choice, Costs, choose
from polyc.graph_driver.parallel.layouts import Layout, Split, box
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.parallelise import ways_of
from polyc.graph_driver.parallel.program import DONE, IR, Writer, sendings
from polyc.graph_driver.parallel.training import by_batch
from polyc.graph_driver.parallel.ways import Nodes
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

    def __init__(self, costs: Costs, choice: Choice, stages: int, options: Mapping[str, Any]) -> None:
        self.costs, self.choice, self.stages, self._options = costs, choice, stages, dict(options)
        self.micro_batches = costs.nodes.ranks
        self._times = [costs.of_way(k, w) for k, w in enumerate(choice.ways)]
        self.first = cut(self._times, [self._leaving(k) for k in range(len(self._times) + 1)], stages, costs.network)
        self.crossings = self._crossings()
        self._models: dict[int, tuple[Model, dict[str, Any], list[str]]] = {}

    def stage_of(self, number: int) -> int:
        """The stage of a node."""
        return sum(number >= f for f in self.first[1:])

    def seconds(self, stage: int) -> float:
        """The predicted time of a stage for one micro-batch."""
        ends = [*self.first[1:], len(self._times)]
        return sum(self._times[self.first[stage] : ends[stage]])

    def _layouts(self) -> dict[str, Layout]:
        graph = self.costs.nodes.graph
        return {o: g for n, w in zip(graph.nodes, self.choice.ways, strict=True) for o, g in zip(n.writes(), w.gives)}

    def _uses(self) -> dict[str, list[int]]:
        uses: dict[str, list[int]] = {}
        for k, node in enumerate(self.costs.nodes.graph.nodes):
            for name in node.reads():
                uses.setdefault(name, []).append(k)
        return uses

    def _leaving(self, number: int) -> int:
        """Bytes of tensors that are made before a node and read from it on."""
        nodes, layouts, uses = self.costs.nodes, self._layouts(), self._uses()
        made = {o for n in nodes.graph.nodes[:number] for o in n.writes()}
        alive = [t for t in made if any(k >= number for k in uses.get(t, ()))]
        return sum(nodes.bytes_of(t, layouts[t], 0) for t in alive)

    def _crossings(self) -> list[Crossing]:
        nodes, layouts, uses = self.costs.nodes, self._layouts(), self._uses()
        maker = {o: k for k, n in enumerate(nodes.graph.nodes) for o in n.writes()}
        made: list[Crossing] = []
        for name, source in ((n, self.stage_of(k)) for n, k in maker.items()):
            for to in sorted({self.stage_of(k) for k in uses.get(name, ())} - {source}):
                made.append(Crossing(name, source, to, nodes.bytes_of(name, layouts[name], 0), len(made)))
        return made

    def sent(self, rank: int | None = None) -> int:
        """Bytes that a rank sends in a call, or all ranks: tensors to later stages, and results to all ranks."""
        total = sum(c.nbytes for c in self.crossings if rank in (None, c.source)) * self.micro_batches
        graph = self.costs.nodes.graph
        for name in graph.outputs:
            if rank in (None, self._owner(name)):
                total += graph.tensors[name].nbytes * (self.stages - 1)
        return int(total)

    def _owner(self, name: str) -> int:
        maker = {o: k for k, n in enumerate(self.costs.nodes.graph.nodes) for o in n.writes()}
        return self.stage_of(maker[name])

    # ---- programs ----

    def program(self, stage: int) -> tuple[onnx.ModelProto, dict[str, Any], list[str]]:
        """A stage's model of one micro-batch; what it is fed, by name: the input and its box for the first micro-batch;
        its results of the whole model."""
        nodes, graph, layouts = self.costs.nodes, self.costs.nodes.graph, self._layouts()
        writer = Writer(graph, 0, range(self.micro_batches))
        writer.ranks = list(range(self.stages))
        come = [c for c in self.crossings if c.to == stage]
        for c in come:
            part = box(layouts[c.tensor], nodes.shape(c.tensor), 0)
            element = type_proto(graph.tensors[c.tensor]).tensor_type.elem_type
            name = writer.fresh(c.tensor)
            writer.message("Recv", "", name, source=c.source, tag=c.tag, dtype=element, shape=[b - a for a, b in part])
            writer.names[c.tensor, layouts[c.tensor]] = name
        ends = [*self.first[1:], len(graph.nodes)]
        plan = sendings(self.costs, self.choice.ways)
        for number in range(self.first[stage], ends[stage]):
            for s in plan[number]:
                writer.send(s)
            writer.compute(graph.nodes[number], self.choice.ways[number])
        for c in self.crossings:
            if c.source == stage:
                writer.message("Send", writer.part(c.tensor, layouts[c.tensor]), "", to=c.to, tag=c.tag)
        results = [o for o in graph.outputs if self._owner(o) == stage]
        outputs = []
        for name in results:
            writer.add("Identity", [writer.part(name, layouts[name])], [name])
            outputs.append(onnx.ValueInfoProto(name=name))
        if writer.done:
            writer.add("Identity", [writer.done], [DONE])
            outputs.append(helper.make_tensor_value_info(DONE, onnx.TensorProto.INT32, [1]))
        made = helper.make_graph(
            writer.nodes, f"{graph.name} stage {stage}", list(writer.inputs.values()), outputs,
            [numpy_helper.from_array(v, n) for n, v in writer.constants.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid(d, v) for d, v in {**graph.opsets, DOMAIN: VERSION}.items()]
        return helper.make_model(made, opset_imports=opsets, ir_version=IR), dict(writer.feeds), results

    def compile(self, stage: int) -> tuple[Model, dict[str, Any], list[str]]:
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
            RankError: a rank is gone.
        """
        from polyc.graph_driver.communication.ranks import world

        ranks, graph = world(), self.costs.nodes.graph
        if ranks.size != self.stages:
            raise ArgumentError(f"the pipeline has {self.stages} stages, but {ranks.size} ranks run")
        missing = [n for n in graph.inputs if n not in inputs]
        if missing:
            raise ArgumentError(f"input '{missing[0]}' is missing")
        model, feeds, results = self.compile(ranks.rank)
        made: dict[str, list[np.ndarray]] = {n: [] for n in results}
        for k in range(self.micro_batches):
            given = {}
            for name, (source, part) in feeds.items():
                value = np.asarray(inputs[source])
                if part and part[0] != (0, value.shape[0]):  # the first micro-batch's: this one's is k further
                    step = part[0][1] - part[0][0]
                    part = ((k * step, (k + 1) * step), *part[1:])
                given[name] = np.ascontiguousarray(value[tuple(slice(a, b) for a, b in part)])
            found = model(given)
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
    batches = {(graph.tensors[n].shape or (0,))[0] for n in graph.outputs}
    if len(batches) != 1 or (batch := batches.pop()) % micro_batches or batch < micro_batches:
        raise ArgumentError(f"results with first axes {sorted(batches)} are no {micro_batches} equal micro-batches")
    if not 1 <= stages <= len(graph.nodes):
        raise ArgumentError(f"{len(graph.nodes)} nodes are not {stages} stages")
    costs = Costs(Nodes(graph, micro_batches), Network.of(network))
    choice = choose(costs, ways_of(costs.nodes, by_batch(batch)))
    for some in sendings(costs, choice.ways)[:-1]:
        for s in some:
            if s.move.total:
                raise ArgumentError(f"'{s.tensor}' needs more than one micro-batch ({s.have} -> {s.want})")
    whole = [o for n, w in zip(graph.nodes, choice.ways) for o, g in zip(n.writes(), w.gives) if o in graph.outputs
             and not isinstance(g, Split)]  # fmt: skip
    if whole:
        raise ArgumentError(f"result '{whole[0]}' needs more than one micro-batch")
    return Pipeline(costs, choice, stages, options)
