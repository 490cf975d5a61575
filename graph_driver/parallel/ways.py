"""The ways to run one node on several ranks: layouts that it gives, and those that it needs then.

A result split along an axis needs of each operand what the elements of each part read (`images.py`): the same part of
an axis, all of it, or a part with a halo. A sum may be split along what it adds up: its result is then partial. Either
way each rank runs the same operator on smaller tensors, and that this computes the part is proved: the relations of the
smaller operator, moved to the place of its part, must be those of the whole operator there (`check`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import islpy as isl

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.pieces import translate_one
from polyc.graph_driver.parallel.flow import Flow, box_set, flow_of
from polyc.graph_driver.parallel.images import layout_of, made_from, met_by, read_for
from polyc.graph_driver.parallel.layouts import WHOLE, Layout, Partial, Range, Split, balanced, box, elements
from polyc.graph_driver.parallel.local import local_graph
from polyc.graph_driver.parallel.own_loops import NotLocal, has_own_loops, shared_out
from polyc.poly.records import dataclass

PARTIAL = Partial("sum")
MOST_LAYOUTS = 12
"""Splits that are considered for one tensor: those of its axes, and those that its readers and makers want."""


@dataclass(frozen=True)
class Way:
    """One way to run a node: the layouts of its results and operands (by position; absent ones None), and the
    `share` of the node's work of the rank that has most of it."""

    gives: tuple[Layout, ...]
    wants: tuple[Layout | None, ...]
    share: float

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.gives))} from {', '.join(str(w) for w in self.wants if w is not None)}"


class Nodes:
    """The nodes of a graph as relations, and their ways over `ranks` ranks. Equal nodes are looked at once."""

    def __init__(self, graph: Graph, ranks: int) -> None:
        self.graph, self.ranks = graph, ranks
        self._flows: dict[object, Flow | None] = {}
        self._legal: dict[object, str] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape; `()` of one that only a run knows."""
        return tuple(self.graph.tensors[name].shape or ())

    def flow(self, node: Node, graph: Graph | None = None) -> Flow | None:
        """The node's relations; None: it has no loops."""
        graph = graph or self.graph
        key = signature(graph, node)
        if key not in self._flows:
            self._flows[key] = _flow(graph, node)
        return self._flows[key]

    def layouts(self) -> dict[str, tuple[Split, ...]]:
        """For each tensor the splits worth a thought: of each axis in equal parts, and what its readers want of it and
        its makers give, from the results backwards, forwards and backwards again."""
        found: dict[str, dict[Split, None]] = {}
        for name, t in self.graph.tensors.items():
            if t.static and t.const is None:
                axes = [(a, n) for a, n in enumerate(t.shape or ()) if n >= self.ranks]
                found[name] = {balanced(a, n, self.ranks): None for a, n in axes}
        for forwards in (False, True, False):
            for node in self.graph.nodes if forwards else reversed(self.graph.nodes):
                flow = self.flow(node)
                if flow is not None:
                    for name, layout in self._neighbours(node, flow, found, forwards):
                        if len(found[name]) < MOST_LAYOUTS:
                            found[name].setdefault(layout)
        return {n: tuple(f) for n, f in found.items()}

    def _neighbours(
        self, node: Node, flow: Flow, found: Mapping[str, Mapping[Split, None]], forwards: bool
    ) -> list[tuple[str, Split]]:
        made: list[tuple[str, Split]] = []
        result = node.outputs[0]
        for k, name in enumerate(node.inputs):
            if name not in found:
                continue
            if forwards:
                for layout in found[name]:
                    image = made_from(flow, 0, k, layout.axis)
                    if image is not None:
                        boxes = [image.box(*b) for b in layout.bounds]
                        made.append((result, layout_of(boxes, self.shape(result))))  # type: ignore[arg-type]
            else:
                for layout in found.get(result, ()):
                    image = read_for(flow, 0, k, layout.axis)
                    if image is not None:
                        boxes = [image.box(*b) for b in layout.bounds]
                        made.append((name, layout_of(boxes, self.shape(name))))  # type: ignore[arg-type]
        return [(n, s) for n, s in made if isinstance(s, Split) and s.covers(self.shape(n)[s.axis])]

    def ways(self, node: Node, layouts: Mapping[str, Sequence[Split]]) -> list[Way]:
        """All legal ways of a node, the one on all ranks alike first."""
        names = list(node.writes())
        everywhere = Way((WHOLE,) * len(names), tuple(WHOLE if i else None for i in node.inputs), 1.0)
        flow = self.flow(node)
        if flow is None or any(n not in layouts for n in names):
            return [everywhere]
        made = [everywhere]
        for result in range(len(names)) if has_own_loops(node) else (0,):
            for layout in layouts[names[result]]:
                way = self._split(node, flow, result, layout)
                if way is not None and way not in made and not self.refusal(node, way):
                    made.append(way)
        names_read = [n for n in node.inputs if n]
        for operands in flow.linear:
            own = [node.inputs[k] for k in operands]
            if not any(n in self.constants or names_read.count(n) != own.count(n) for n in own):
                layout_of_each = (
                    (PARTIAL if k in operands else WHOLE) if name else None for k, name in enumerate(node.inputs)
                )
                made.append(Way((PARTIAL,) * len(names), tuple(layout_of_each), 1.0))
        for result, sums in enumerate(flow.sums):
            for position in sums:
                for layout in layouts.get(node.inputs[position], ()):
                    way = self._summed(node, flow, result, position, layout)
                    if way is not None and way not in made and not self.refusal(node, way):
                        made.append(way)
        return made

    def _split(self, node: Node, flow: Flow, result: int, layout: Split) -> Way | None:
        """A result (and those with that axis) as `layout` says: what each operand must be."""
        names = list(node.writes())
        extent = self.shape(names[result])[layout.axis]
        together = [result] if has_own_loops(node) else list(range(len(names)))
        for k in together:
            shape = self.shape(names[k])
            if len(shape) <= layout.axis or shape[layout.axis] != extent:
                return None
        wants: list[Layout | None] = []
        for k, name in enumerate(node.inputs):
            if not name:
                wants.append(None)
                continue
            boxes: list[list[Range]] = []
            for begin, end in layout.bounds:
                whole: list[Range] | None = None
                for r in together:
                    image = read_for(flow, r, k, layout.axis)
                    part = [] if image is None else [*image.box(begin, end)]
                    if part:
                        whole = part if whole is None else [
                            (min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(whole, part, strict=True)
                        ]  # fmt: skip
                boxes.append(whole if whole is not None else [(0, n) for n in self.shape(name)])
            want = layout_of(boxes, self.shape(name))
            if want is None:
                return None
            wants.append(want)
        share = max(b - a for a, b in layout.bounds) / extent
        if not has_own_loops(node):
            return Way((layout,) * len(names), tuple(wants), share)
        gives = self._made(node, flow, wants, {result: layout})
        return None if gives is None else Way(gives, tuple(wants), share)

    def _summed(self, node: Node, flow: Flow, result: int, position: int, layout: Split) -> Way | None:
        """A sum over parts of an axis of an operand that no element of the result has for itself."""
        image = made_from(flow, result, position, layout.axis)
        shape = self.shape(list(node.writes())[result])
        if image is None or any(image.box(*b) != tuple((0, n) for n in shape) for b in layout.bounds):
            return None
        row = flow.sums[result][position]
        wants: list[Layout | None] = []
        for k, name in enumerate(node.inputs):
            if not name:
                wants.append(None)
            elif k == position:
                wants.append(layout)
            else:
                met = met_by(flow, result, position, k, layout.axis) if k in row else None
                boxes = [met.box(*b) for b in layout.bounds] if met is not None else []
                want = layout_of(boxes, self.shape(name)) if boxes else WHOLE
                if want is None or (k in flow.reads[result] and met is None):
                    return None
                wants.append(want)
        share = max(b - a for a, b in layout.bounds) / self.shape(node.inputs[position])[layout.axis]
        gives = self._made(node, flow, wants, {result: Partial(flow.reduce[result])})
        return None if gives is None else Way(gives, tuple(wants), share)

    def _made(
        self, node: Node, flow: Flow, wants: Sequence[Layout | None], known: Mapping[int, Layout]
    ) -> tuple[Layout, ...] | None:
        """The layouts of all results, some of which are known, that parts of the operands make; None: one has none."""
        gives: list[Layout] = []
        for k, name in enumerate(node.writes()):
            give = known.get(k)
            if give is None:
                boxes = [self._complete(node, flow, wants, k, rank) for rank in range(self.ranks)]
                found = [b for b in boxes if b is not None]
                give = layout_of(found, self.shape(name)) if len(found) == self.ranks else None
                if isinstance(give, Split) and not give.covers(self.shape(name)[give.axis]):
                    give = None
            if give is None and flow.sums[k]:
                give = Partial(flow.reduce[k])
            if give is None:
                return None
            gives.append(give)
        return tuple(gives)

    def _complete(
        self, node: Node, flow: Flow, wants: Sequence[Layout | None], result: int, rank: int
    ) -> tuple[Range, ...] | None:
        """The elements of a result that a rank can make all alone; None: they are no box, or there are none."""
        shape = self.shape(list(node.writes())[result])
        left = box_set([(0, n) for n in shape], "Y")
        for k, relation in flow.reads[result].items():
            want, whole = wants[k], self.shape(node.inputs[k])
            if isinstance(want, Split):
                own = box_set(box(want, whole, rank), f"X{k}")
                left = left.subtract(relation.subtract_range(own).domain())
        if left.is_empty():
            return None
        ends = [(left.dim_min_val(k).to_python(), left.dim_max_val(k).to_python()) for k in range(len(shape))]
        found = tuple((int(a), int(b) + 1) for a, b in ends)
        return found if box_set(found, "Y").is_equal(left) else None

    def refusal(self, node: Node, way: Way) -> str:
        """Why the parts of this way are not the operator on smaller tensors; empty if they are."""
        key = (signature(self.graph, node), way)
        if key not in self._legal:
            self._legal[key] = self._refused(node, way)
        return self._legal[key]

    def _refused(self, node: Node, way: Way) -> str:
        flow = self.flow(node)
        if flow is None:
            return "it has no loops"
        own = has_own_loops(node)
        if flow.moving and not own:
            return "its values depend on their place"
        seen = set()
        for rank in range(self.ranks):
            try:
                part = local_graph(self.graph, node, way.gives, way.wants, rank)
            except NotLocal as reason:
                return str(reason)
            key = (signature(part, part.nodes[0]), self._from_border(node, way, rank))
            if key in seen:
                continue
            seen.add(key)
            why = self._differs(node, flow, way, rank, part)
            if why:
                return f"on rank {rank} {why}"
        if own and not shared_out(self.graph, node, way.gives, way.wants, self.ranks):
            return "some update of a sum is not on exactly one rank"
        return ""

    def _from_border(self, node: Node, way: Way, rank: int) -> tuple[object, ...]:
        """Whether the parts of a rank touch the ends of the tensors: parts inside that are alike need one proof."""
        names = [*node.writes(), *(i for i in node.inputs)]
        layouts = [*way.gives, *way.wants]
        return tuple(
            (a == 0, b == n)
            for name, layout in zip(names, layouts, strict=True)
            if name and isinstance(layout, Split)
            for (a, b), n in zip(box(layout, self.shape(name), rank), self.shape(name), strict=True)
        )

    def _differs(self, node: Node, flow: Flow, way: Way, rank: int, part: Graph) -> str:
        """How the smaller operator is another one than the whole operator on its part; empty: it is the same."""
        small = self.flow(part.nodes[0], part)
        if small is None:
            return "the part has no loops"
        own = has_own_loops(node)
        if not set(small.skeleton) <= set(flow.skeleton) if own else (small.skeleton != flow.skeleton or small.moving):
            return "the part computes something else"
        for k, name in enumerate(node.writes()):
            here = box(way.gives[k], self.shape(name), rank)
            if small.reads[k].keys() != flow.reads[k].keys() and not own:
                return "the part reads other operands"
            for p, relation in flow.reads[k].items():
                want = way.wants[p]
                assert want is not None
                there = box(want, self.shape(node.inputs[p]), rank)
                inside = relation.intersect_domain(box_set(here, "Y"))
                if isinstance(way.gives[k], Partial):
                    inside = inside.intersect_range(box_set(there, f"X{p}"))
                reads = small.reads[k].get(p)
                moved = _moved(inside, here, there)
                if not (moved.is_empty() if reads is None else moved.is_equal(reads)):
                    return f"operand {p} is read elsewhere"
        return ""

    def flops(self, node: Node) -> float:
        """Floating-point operations of a node."""
        flow = self.flow(node)
        return 0.0 if flow is None else flow.flops

    @cached_property
    def constants(self) -> frozenset[str]:
        """Tensors that every rank may have any part of for nothing: weights, and the inputs of the model."""
        known = {n for n, t in self.graph.tensors.items() if t.const is not None}
        return frozenset(known | set(self.graph.inputs))

    def bytes_of(self, name: str, layout: Layout, rank: int) -> int:
        """Bytes of a rank's part of a tensor."""
        t = self.graph.tensors[name]
        return 0 if not t.static or t.dtype is None else elements(box(layout, self.shape(name), rank)) * t.dtype.bytes


def signature(graph: Graph, node: Node) -> object:
    """What decides about a node's relations."""
    tensors = [graph.tensors[n] if n else None for n in (*node.inputs, *node.writes())]
    small = [
        None if t is None else (t.dtype, t.shape, t.const.tobytes() if t.const is not None and t.size <= 64 else None)
        for t in tensors
    ]
    attrs = sorted((k, v.tobytes() if hasattr(v, "tobytes") else repr(v)) for k, v in node.attrs.items())
    return (node.kind, tuple(attrs), tuple(small))


def _flow(graph: Graph, node: Node) -> Flow | None:
    tensors = [graph.tensors[n] for n in (*node.reads(), *node.writes())]
    if not all(t.static and all(isinstance(e, int) for e in t.shape or ()) for t in tensors) or node.captures:
        return None
    operator = translate_one(graph, node, lookup).operator
    if operator is None:
        return None
    operands = {k: tuple(graph.tensors[i].shape or ()) for k, i in enumerate(node.inputs) if i}
    shapes = [tuple(graph.tensors[o].shape or ()) for o in node.writes()]
    return flow_of(operator, operands, shapes, through=has_own_loops(node))


def _moved(relation: isl.Map, domain: Sequence[Range], target: Sequence[Range]) -> isl.Map:
    """The relation between boxes, each index counted from the begin of its box."""
    return relation.apply_domain(_shift(domain, relation.get_tuple_name(isl.dim_type.in_))).apply_range(
        _shift(target, relation.get_tuple_name(isl.dim_type.out))
    )


def _shift(part: Sequence[Range], name: str) -> isl.Map:
    names = [f"d{k}" for k in range(len(part))]
    moved = [f"d{k} - {a}" for k, (a, _) in enumerate(part)]
    return isl.Map(f"{{ {name}[{', '.join(names)}] -> {name}[{', '.join(moved)}] }}")
