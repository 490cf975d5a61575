"""Micro-batches: a part of the batch as a rank in time, and models of some nodes that run on one after the other.

All micro-batches run the same program, that of the first: what differs between them is fed. So a weight of which each
needs another part is an input of the program, and a computed tensor that is the same for all but read in parts is
refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.inference.concrete import type_proto
from polyc.graph_driver.parallel.choose import Choice, Costs, choose
from polyc.graph_driver.parallel.layouts import Layout, Range, Split, Whole, box
from polyc.graph_driver.parallel.network import Network
from polyc.graph_driver.parallel.own_loops import has_own_loops, local_loops
from polyc.graph_driver.parallel.parallelise import ways_of
from polyc.graph_driver.parallel.program import Writer, sendings
from polyc.graph_driver.parallel.training import by_batch
from polyc.graph_driver.parallel.ways import Nodes
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

Feeds = Mapping[str, tuple[str, tuple[Range, ...]]]


class BatchWriter(Writer):
    """The program of the first micro-batch, that others can run: parts of weights are inputs."""

    def __init__(self, graph: Graph, micro_batches: int) -> None:
        super().__init__(graph, 0, range(micro_batches))

    def part(self, name: str, layout: Layout) -> str:
        """As `Writer.part`."""
        if (
            (name, layout) not in self.names
            and isinstance(layout, Split)
            and self.graph.tensors[name].const is not None
        ):
            made, cut = self.take(name, layout), box(layout, self.shape(name), self.rank)
            self.feeds[made] = (name, cut)
        return super().part(name, layout)

    def take(self, name: str, layout: Layout) -> str:
        """An input for a tensor of another program, of the first micro-batch; its name."""
        made = self.names[name, layout] = self.fresh(name)
        proto = type_proto(self.graph.tensors[name])
        shape = [b - a for a, b in box(layout, self.shape(name), self.rank)]
        kind = helper.make_tensor_type_proto(proto.tensor_type.elem_type, shape)
        self.inputs[made] = onnx.ValueInfoProto(name=made, type=kind)
        return made


@dataclass(frozen=True)
class Part:
    """A model of some nodes on one micro-batch. `feeds`: by input the input or weight of the whole model, and its box
    of the first micro-batch; `takes`: by input the tensor of another part; `gives`: by result the tensor that it is."""

    model: onnx.ModelProto
    feeds: Feeds
    takes: Mapping[str, str]
    gives: Mapping[str, str]


class Batches:
    """A graph on `micro_batches` parts of its batch, and how each node runs on one of them."""

    def __init__(self, costs: Costs, choice: Choice) -> None:
        self.costs, self.choice, self.graph = costs, choice, costs.nodes.graph
        self.count = costs.nodes.ranks
        self.times = [costs.of_way(k, w) for k, w in enumerate(choice.ways)]
        self.layouts: dict[str, Layout] = {
            o: g for n, w in zip(self.graph.nodes, choice.ways, strict=True) for o, g in zip(n.writes(), w.gives)
        }
        self.maker = {o: k for k, n in enumerate(self.graph.nodes) for o in n.writes()}

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor's part of one micro-batch."""
        return tuple(b - a for a, b in box(self.layouts[name], self.costs.nodes.shape(name), 0))

    def bytes_of(self, name: str) -> int:
        """Of a tensor's part of one micro-batch."""
        return self.costs.nodes.bytes_of(name, self.layouts[name], 0)

    def part(self, numbers: Sequence[int], wanted: Collection[str], what: str) -> Part:
        """The model of some nodes (in order), whose results are those of `wanted` that they make."""
        writer, made, takes = BatchWriter(self.graph, self.count), set[str](), dict[str, str]()
        for number in numbers:
            node, way = self.graph.nodes[number], self.choice.ways[number]
            for name in node.reads():
                if name in self.maker and name not in made and name not in takes.values():
                    takes[writer.take(name, self.layouts[name])] = name
            writer.compute(node, way)
            made |= set(node.writes())
        results = {writer.fresh(f"{n} of a micro-batch"): n for n in sorted(made & set(wanted))}
        proto = writer.finished({r: writer.part(n, self.layouts[n]) for r, n in results.items()}, what)
        return Part(proto, dict(writer.feeds), takes, results)

    def fed(self, feeds: Feeds, inputs: Mapping[str, Any], number: int) -> dict[str, np.ndarray]:
        """The arrays of a program for a micro-batch. Raises `ArgumentError`: an input is missing or does not fit."""
        given = {}
        for name, (source, part) in feeds.items():
            tensor = self.graph.tensors[source]
            if tensor.const is None and source not in inputs:
                raise ArgumentError(f"input '{source}' is missing")
            value = np.asarray(inputs[source]) if tensor.const is None else tensor.const
            if value.shape != tensor.shape:
                raise ArgumentError(f"input '{source}' has shape {value.shape}, the model is for {tensor.shape}")
            if part and part[0] != (0, value.shape[0]):
                step = part[0][1] - part[0][0]
                part = ((number * step, (number + 1) * step), *part[1:])
            given[name] = np.ascontiguousarray(value[tuple(slice(a, b) for a, b in part)])
        return given


def in_micro_batches(graph: Graph, batch: int, micro_batches: int, network: Network | str | float | None) -> Batches:
    """How each node of a graph runs on one of equal parts of the batch.

    Raises:
        ArgumentError: a node needs more than one micro-batch, or the batch is no multiple.
    """
    if micro_batches < 1 or batch % micro_batches:
        raise ArgumentError(f"a batch of {batch} is no {micro_batches} equal micro-batches")
    costs = Costs(Nodes(graph, micro_batches), Network.of(network))
    choice = choose(costs, ways_of(costs.nodes, by_batch(batch)))
    for node, moves in zip(graph.nodes, sendings(costs, choice.ways), strict=False):
        what = f"{node.kind} '{node.name}'"
        for s in moves:
            if s.move.kind == "Slice":
                raise ArgumentError(f"'{s.tensor}' is the same for all micro-batches, but {what} reads it in parts")
            if s.move.total:
                raise ArgumentError(f"{what} needs more than one micro-batch of '{s.tensor}' ({s.have} -> {s.want})")
    for node, way in zip(graph.nodes, choice.ways, strict=True):
        if has_own_loops(node):
            programs = {local_loops(graph, node, way.gives, way.wants, k) for k in range(micro_batches)}
            if len(programs) > 1:
                raise ArgumentError(f"{node.kind} '{node.name}' is another program on each micro-batch")
    return Batches(costs, choice)


def joined(layout: Layout, values: Sequence[np.ndarray]) -> np.ndarray:
    """A tensor of the whole batch from its micro-batches' parts, in order."""
    if isinstance(layout, Whole):
        return values[0]
    if isinstance(layout, Split):
        return np.concatenate(values, layout.axis)
    combine: Any = {"sum": np.add, "max": np.maximum, "min": np.minimum}[layout.reduce]
    total = values[0].copy()
    for v in values[1:]:
        combine(total, v, out=total)
    return total
