"""The program of one rank: an ONNX model of the rank's parts, with communication operators where layouts change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from polyc.graph_driver.communication.operators import DOMAIN, VERSION
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.host.reference import model_of
from polyc.graph_driver.inference.concrete import type_proto
from polyc.graph_driver.operators.loops import DOMAIN as LOOPS_DOMAIN
from polyc.graph_driver.parallel.choose import Costs
from polyc.graph_driver.parallel.layouts import WHOLE, Layout, Partial, Split, box
from polyc.graph_driver.parallel.local import local_graph
from polyc.graph_driver.parallel.moves import Move, move
from polyc.graph_driver.parallel.own_loops import has_own_loops
from polyc.graph_driver.parallel.ways import Way
from polyc.poly.records import dataclass

DONE = "polyc.done"
"""The last of the results that keep messages in order: an output, so that no pass drops a message."""
IR = 9  # of the ONNX files that are made here: the newest that all of polyc's readers take


@dataclass(frozen=True)
class Sending:
    """A move of a tensor in the plan of all ranks."""

    tensor: str
    have: Layout
    want: Layout
    move: Move


@dataclass(frozen=True)
class Group:
    """Sums of results of the model that one message makes, as one row of elements: it begins behind node `after`, and
    has to end before the program does. `move` is that of the row."""

    members: tuple[Sending, ...]
    after: int
    move: Move


def groups_of(costs: Costs, plan: Sequence[Sequence[Sending]], most: int) -> list[Group]:
    """The sums at the end of a plan in groups of up to `most` bytes, in the order in which they are ready."""
    graph = costs.nodes.graph
    maker = {o: k for k, n in enumerate(graph.nodes) for o in n.writes()}
    ready = [s for s in plan[-1] if s.move.kind == "AllReduce"]
    ready.sort(key=lambda s: maker[s.tensor])
    made: list[Group] = []
    open_groups: dict[object, list[Sending]] = {}

    def close(key: object) -> None:
        members = tuple(open_groups.pop(key))
        elements = sum(graph.tensors[s.tensor].size for s in members)
        dtype = graph.tensors[members[0].tensor].dtype
        assert dtype is not None
        row = move(members[0].have, WHOLE, (elements,), dtype.bytes, costs.nodes.ranks)
        assert row is not None
        made.append(Group(members, max(maker[s.tensor] for s in members), row))

    for s in ready:
        key: object = (s.have, graph.tensors[s.tensor].dtype)
        open_groups.setdefault(key, []).append(s)
        if sum(graph.tensors[m.tensor].nbytes for m in open_groups[key]) >= most:
            close(key)
    for left in list(open_groups):
        close(left)
    return sorted(made, key=lambda g: g.after)


@dataclass(frozen=True)
class Program:
    """What one rank runs. `feeds`: for each input of `model` the input of the whole model, and the box of it."""

    model: onnx.ModelProto
    feeds: Mapping[str, tuple[str, tuple[tuple[int, int], ...]]]
    outputs: tuple[str, ...]


def sendings(costs: Costs, ways: Sequence[Way]) -> list[list[Sending]]:
    """The moves before each node, and those of the results at the end: the same walk as the search."""
    graph, known = costs.nodes.graph, costs.nodes.constants
    held: dict[str, list[Layout]] = {}
    made: list[list[Sending]] = []

    def want(name: str, layout: Layout) -> list[Sending]:
        if name in known or layout in held[name]:
            return []
        found = costs.cheapest(name, held[name], layout)
        assert found is not None
        moved = costs.move(name, found[1], layout)
        assert moved is not None
        held[name].append(layout)
        return [Sending(name, found[1], layout, moved)]

    for node, way in zip(graph.nodes, ways, strict=True):
        wanted = [(n, w) for n, w in zip(node.inputs, way.wants, strict=True) if n and w is not None]
        made.append([s for n, w in (*wanted, *((c, WHOLE) for c in node.captures)) for s in want(n, w)])
        held |= {n: [g] for n, g in zip(node.writes(), way.gives, strict=True)}
    made.append([s for o in graph.outputs for s in want(o, WHOLE)])
    return made


class Writer:
    """Nodes of one rank's model in the making."""

    def __init__(self, graph: Graph, rank: int, ranks: Sequence[int]) -> None:
        self.graph, self.rank, self.ranks = graph, rank, list(ranks)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, onnx.ValueInfoProto] = {}
        self.feeds: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {}
        self.names: dict[tuple[str, Layout], str] = {}
        self.done = ""
        self._used = set(graph.tensors)

    def fresh(self, stem: str) -> str:
        """A name not in use."""
        name, k = stem, 0
        while name in self._used:
            k += 1
            name = f"{stem}@{k}"
        self._used.add(name)
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """The whole tensor's shape."""
        return tuple(self.graph.tensors[name].shape or ())

    def part(self, name: str, layout: Layout) -> str:
        """The name of the rank's part of a tensor; constants and inputs are cut here."""
        found = self.names.get((name, layout))
        if found is not None:
            return found
        t = self.graph.tensors[name]
        cut = box(layout, self.shape(name), self.rank)
        made = name if isinstance(layout, type(WHOLE)) else self.fresh(name)
        if t.const is not None:
            self.constants[made] = np.ascontiguousarray(t.const[tuple(slice(a, b) for a, b in cut)]).reshape(
                tuple(b - a for a, b in cut)
            )
        else:
            assert name in self.graph.inputs, name
            proto = type_proto(t)
            if t.static:
                proto = helper.make_tensor_type_proto(proto.tensor_type.elem_type, [b - a for a, b in cut])
            self.inputs[made] = onnx.ValueInfoProto(name=made, type=proto)
            self.feeds[made] = (name, cut)
        self.names[name, layout] = made
        return made

    def add(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attrs: Any) -> None:
        """One more node."""
        self.nodes.append(helper.make_node(op_type, inputs, outputs, domain=domain, **attrs))

    def message(self, op_type: str, x: str, y: str, **attrs: Any) -> None:
        """A communication operator behind all before it. `x` or `y` is empty of those that have none."""
        done = self.fresh("done")
        operands = [x] if x else []
        self.add(
            op_type, [*operands, *([self.done] if self.done else [])], [*([y] if y else []), done], DOMAIN,
            ranks=self.ranks, name=y or x, **attrs,
        )  # fmt: skip
        self.done = done

    def send(self, s: Sending) -> None:
        """The rank's side of a move."""
        x, shape = self.part(s.tensor, s.have), self.shape(s.tensor)
        y = self.fresh(s.tensor)
        n = len(self.ranks)
        if s.move.kind == "Slice":
            assert isinstance(s.want, Split)
            begin, end = s.want.bounds[self.ranks.index(self.rank)]
            names = [self.constant(np.array([v], np.int64)) for v in (begin, end, s.want.axis)]
            self.add("Slice", [x, *names], [y])
        elif s.move.kind == "AllReduce":
            assert isinstance(s.have, Partial)
            self.message("AllReduce", x, y, reduce=s.have.reduce)
        elif s.move.kind == "ReduceScatter":
            assert isinstance(s.have, Partial) and isinstance(s.want, Split)
            counts = [b - a for a, b in s.want.bounds]
            self.message("ReduceScatter", x, y, reduce=s.have.reduce, axis=s.want.axis, counts=counts, rank=self.rank)
        elif s.move.kind == "AllGather":
            assert isinstance(s.have, Split)
            self.message("AllGather", x, y, axis=s.have.axis, counts=[b - a for a, b in s.have.bounds], rank=self.rank)
        else:
            have, need = (
                [v for r in range(n) for ends in box(layout, shape, r) for v in ends] for layout in (s.have, s.want)
            )
            self.message("Exchange", x, y, have=have, need=need, rank=self.rank)
        self.names[s.tensor, s.want] = y

    def begin(self, group: Group) -> tuple[str, str]:
        """Start the message of a group; the row that is sent and the one that comes."""
        flat = []
        for s in group.members:
            row = self.fresh(f"{s.tensor} row")
            self.add("Reshape", [self.part(s.tensor, s.have), self.constant(np.array([-1], np.int64))], [row])
            flat.append(row)
        row = flat[0]
        if len(flat) > 1:
            row = self.fresh("row")
            self.add("Concat", flat, [row], axis=0)
        came = self.fresh("sums")
        have = group.members[0].have
        assert isinstance(have, Partial)
        self.message("Start", row, came, kind="AllReduce", reduce=have.reduce)
        return row, came

    def end(self, group: Group, row: str, came: str) -> None:
        """Wait for the message of a group, and take its members out."""
        total = self.fresh("sums")
        self.add("Wait", [came, row], [total], DOMAIN)
        sizes = [int(self.graph.tensors[s.tensor].size) for s in group.members]
        parts = [self.fresh("part") for _ in sizes] if len(sizes) > 1 else [total]
        if len(sizes) > 1:
            self.add("Split", [total, self.constant(np.array(sizes, np.int64))], parts, axis=0)
        for s, part in zip(group.members, parts, strict=True):
            made = self.fresh(s.tensor)
            shape = self.constant(np.array(self.shape(s.tensor), np.int64))
            self.add("Reshape", [part, shape], [made])
            self.names[s.tensor, s.want] = made

    def constant(self, value: np.ndarray) -> str:
        """A constant that no other has."""
        name = self.fresh("constant")
        self.constants[name] = value
        return name

    def compute(self, node: Node, way: Way) -> None:
        """The rank's part of a node."""
        local = local_graph(self.graph, node, way.gives, way.wants, self.ranks.index(self.rank))
        (small,) = local.nodes
        proto = model_of(small, local.opsets, local.tensors).graph.node[0]
        del proto.input[:], proto.output[:]
        for old, name, want in zip(node.inputs, small.inputs, way.wants, strict=True):
            if not old or want is None:
                proto.input.append("")
                continue
            const = local.tensors[name].const
            whole = self.graph.tensors[old].const
            if const is not None and whole is not None and const.shape != () and name not in (old, f"{old} as operand"):
                proto.input.append(self.constant(const))
            else:
                proto.input.append(self.part(old, want))
        for name, give in zip(node.outputs, _absent(node, way.gives), strict=True):
            if not name or give is None:
                proto.output.append("")
                continue
            made = name if name not in self.graph.outputs else self.fresh(name)
            self.names[name, give] = made
            proto.output.append(self.fresh(f"{name} of loops") if has_own_loops(node) else made)
        for c in node.captures:
            self.part(c, WHOLE)
        self.nodes.append(proto)
        if has_own_loops(node):  # its results have the shapes of the loops' arrays
            for name, give, own in zip(node.outputs, way.gives, proto.output, strict=True):
                part = box(give, self.shape(name), self.ranks.index(self.rank))
                shape = self.constant(np.array([b - a for a, b in part], np.int64))
                self.add("Reshape", [own, shape], [self.names[name, give]])

    def model(self) -> onnx.ModelProto:
        """All of it, with the results of the whole model."""
        return self.finished({name: self.part(name, WHOLE) for name in self.graph.outputs}, f"rank {self.rank}")

    def finished(self, results: Mapping[str, str], what: str) -> onnx.ModelProto:
        """All of it: results by name, with the tensors that they are. `what` ends the model's name."""
        outputs = []
        for name, made in results.items():
            if made != name:
                self.add("Identity", [made], [name])
            outputs.append(onnx.ValueInfoProto(name=name))
        if self.done:
            self.add("Identity", [self.done], [DONE])
            outputs.append(helper.make_tensor_value_info(DONE, onnx.TensorProto.INT32, [1]))
        graph = helper.make_graph(
            self.nodes, f"{self.graph.name} {what}", list(self.inputs.values()), outputs,
            [numpy_helper.from_array(v, n) for n, v in self.constants.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid(d, v) for d, v in {**self.graph.opsets, DOMAIN: VERSION, LOOPS_DOMAIN: 1}.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR)


def _absent(node: Node, gives: Sequence[Layout]) -> list[Layout | None]:
    """The layouts of all results, None of those that are absent."""
    left = iter(gives)
    return [next(left) if name else None for name in node.outputs]


def program(costs: Costs, ways: Sequence[Way], rank: int, group_bytes: int) -> Program:
    """What a rank runs for these ways of all nodes; sums of results go in groups of up to `group_bytes`, behind what
    the program does meanwhile."""
    graph = costs.nodes.graph
    writer = Writer(graph, rank, range(costs.nodes.ranks))
    plan = sendings(costs, ways)
    groups = groups_of(costs, plan, group_bytes)
    rows: list[tuple[str, str]] = []
    for number, (node, way, moves) in enumerate(zip(graph.nodes, ways, plan, strict=False)):
        for s in moves:
            writer.send(s)
        writer.compute(node, way)
        rows += [writer.begin(g) for g in groups if g.after == number]
    for group, (row, came) in zip(groups, rows, strict=True):
        writer.end(group, row, came)
    grouped = {s for g in groups for s in g.members}
    for s in plan[-1]:
        if s not in grouped:
            writer.send(s)
    for name in graph.outputs:  # a constant, or an input: handed on
        writer.part(name, WHOLE)
    return Program(writer.model(), dict(writer.feeds), tuple(graph.outputs))
