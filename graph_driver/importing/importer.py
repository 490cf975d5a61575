"""ONNX to graph IR in one forward walk with concrete shapes.

The walk is an abstract execution: it knows every input shape, so each node's output shapes
come from onnx's inference of that single node; whatever depends on constants and shapes
only is computed at once, which makes shape subgraphs (Shape, Gather, Concat, ...) vanish.
Every defect of the file is a `ModelError` of one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.graph import subgraphs
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.limits import MAX_DEPTH, MAX_NODES, check_shape
from polyc.graph_driver.graph.onnx_tensors import attributes, dtype_of, sparse_to_numpy, to_numpy
from polyc.graph_driver.importing import bodies, functions, known_courses, unrolling
from polyc.graph_driver.importing.annotations import check_annotations, report
from polyc.graph_driver.importing.attempts import imported
from polyc.graph_driver.importing.binding import Binder, Dim, names_of
from polyc.graph_driver.importing.bound_inputs import bound_values
from polyc.graph_driver.importing.folding import folded, zeros
from polyc.graph_driver.importing.functions import has_loops
from polyc.graph_driver.importing.own_loops import is_loops, loops_node
from polyc.graph_driver.importing.reading import read, readable
from polyc.graph_driver.importing.rows_of_loops import with_rows_outside
from polyc.graph_driver.importing.sequences import Sequences
from polyc.graph_driver.importing.texts import make_texts
from polyc.graph_driver.inference import classical, contrib
from polyc.graph_driver.inference.concrete import check_attribute_types, check_form, infer, type_proto
from polyc.graph_driver.inference.symbolic import infer_symbolic, is_symbolic, sizes_decided
from polyc.graph_driver.verifying.verify import known_by_import, verify
from polyc.poly.dtypes import from_numpy
from polyc.poly.errors import ModelError


def import_model(
    source: str | Path | onnx.ModelProto | bytes,
    dims: Mapping[str, Dim] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbolic: bool = False,
    bind: Mapping[str, Any] | None = None,
    strict_annotations: bool = False,
    warn: bool = True,
    when_read: Callable[[int], None] | None = None,
    portable: bool = False,
) -> Graph:
    """Read a model and make every size a number, or a formula of the sizes that stay symbolic.

    Args:
        source: path, protobuf or serialised bytes; a model older than opset 7 is converted by onnx.
        dims: values of symbolic sizes, by their name in the model or as `INPUT.AXIS`; a range
            `(low, high)` keeps the size symbolic (`high` None: no end).
        shapes: concrete shapes of inputs, which bind the symbols in them.
        symbolic: keep every size symbolic that nothing binds.
        bind: values of inputs, which become constants.
        strict_annotations: refuse a file that declares shapes which its own operators contradict.
        warn: say so otherwise (not where the graph is only looked at).
        when_read: told the number of nodes as soon as it is known.
        portable: compute at import only what has the same bits on every machine.

    Raises:
        SizesMissing: a size is not given that must be a number.
        NotSymbolic: a node cannot have a size that stays symbolic.
        ModelError: for anything wrong with the file or the sizes; one line.
    """
    wrong: dict[int, list[str]] = {}  # of each attempt

    def run(binder: Binder) -> Graph:
        graph, lines = _imported(source, binder, bind or {}, when_read, portable)
        wrong[id(graph)] = lines
        return graph

    graph = imported(run, dims or {}, shapes or {}, symbolic)
    if warn or strict_annotations:
        report(wrong[id(graph)], graph, strict_annotations)
    return graph


def _imported(
    source: str | Path | onnx.ModelProto | bytes, binder: Binder, bind: Mapping[str, Any],
    when_read: Callable[[int], None] | None, portable: bool,
) -> tuple[Graph, list[str]]:  # fmt: skip
    """The graph, and the shapes that the file declares and its operators contradict."""
    model, folder = read(source)
    if when_read is not None:
        when_read(len(model.graph.node))
    model, opsets = readable(model)
    walker = Walker(model, folder, opsets, owned=model is not source, portable=portable)
    graph = walker.run(binder, bound_values(model.graph, bind))
    return graph, check_annotations(model.graph, graph)


class Walker:
    """A graph under construction, node by node."""

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Path | None,
        opsets: dict[str, int],
        owned: bool,
        portable: bool = False,
    ) -> None:
        """`owned`: the protobuf is ours, so weights may move out of it. `portable`: as for `import_model`."""
        self.proto, self.folder, self.owned, self.portable = model.graph, folder, owned, portable
        self.graph = Graph(model.graph.name or "model", opsets, [], [], {}, [])
        self.folded = self.visited = 0
        self.defined: dict[str, int] = {}  # operators replaced by their definition
        self.trips: dict[tuple[str, ...], int | None] = {}  # of loops, by their outputs: counted once
        self.declared = {i.name: names_of(i) for i in (*model.graph.input, *model.graph.output)}
        self.sequences = Sequences(self.graph.constant, self.graph.fresh, opsets.get("", 1))

    def run(self, binder: Binder, bound: Mapping[str, np.ndarray]) -> Graph:
        """The graph of the whole model. Raises `ModelError`."""
        if len(self.proto.node) > MAX_NODES:
            raise ModelError(f"the model has {len(self.proto.node)} nodes; the limit is {MAX_NODES}")
        for name, value in bound.items():
            self._define(Tensor(name, from_numpy(value.dtype), value.shape, value))
            self.graph.notes.append(f"input '{name}' is bound to {value.tolist()}")
        self._initializers(bound)
        self._inputs(binder)
        self.graph.symbols = binder.symbols if binder.symbols else None
        for node in self.proto.node:
            self.visit(node, 0)
        self._outputs()
        if self.folded:
            self.graph.notes.append(f"{self.folded} nodes computed at import (constants and shapes)")
        if self.defined:
            each = ", ".join(f"{n} {kind}" for kind, n in sorted(self.defined.items()))
            self.graph.notes.append(f"replaced by their definition: {each}")
        self.graph.notes += binder.notes
        make_texts(self.graph)
        verify(self.graph)
        return self.graph

    def _initializers(self, bound: Mapping[str, np.ndarray]) -> None:
        for t in self.proto.initializer:
            if t.name in bound:
                continue  # it was the default
            value = to_numpy(t, self.folder, f"initializer '{t.name}'")
            self._define(Tensor(t.name, dtype_of(t.data_type), value.shape, value))
            if self.owned:
                # The array owns (or maps) the data now: a second copy in the protobuf is not kept.
                t.ClearField("raw_data")
        for s in self.proto.sparse_initializer:
            name = s.values.name
            value = sparse_to_numpy(s, f"sparse initializer '{name}'")
            self._define(Tensor(name, dtype_of(s.values.data_type), value.shape, value))

    def _inputs(self, binder: Binder) -> None:
        symbols: dict[str, list[int | str] | None] = {}
        types: dict[str, int] = {}
        for i in self.proto.input:
            if i.name in self.graph.tensors:
                continue  # an initializer is its default
            if not i.name or i.name in self.graph.inputs:
                raise ModelError(f"graph input '{i.name}' is unnamed or listed twice")
            self.graph.inputs.append(i.name)
            if not i.type.HasField("tensor_type") or dtype_of(i.type.tensor_type.elem_type) is None:
                if not i.type.WhichOneof("value"):
                    raise ModelError(f"graph input '{i.name}' has no type")
                self._define(Tensor(i.name, None, None, None, i.type))  # strings, sequences: the host's
                continue
            types[i.name] = i.type.tensor_type.elem_type
            if i.type.tensor_type.HasField("shape"):
                symbols[i.name] = names_of(i)
            else:
                symbols[i.name] = None
        for name, shape in binder.bind(symbols).items():
            dtype = dtype_of(types[name])
            assert dtype is not None
            check_shape(f"input '{name}'", [n for n in shape if isinstance(n, int)], dtype.bytes)
            self._define(Tensor(name, dtype, shape))

    def _outputs(self) -> None:
        for o in self.proto.output:
            if o.name not in self.graph.tensors:
                raise ModelError(f"graph output '{o.name}' is never made")
            if o.name in self.graph.outputs:
                raise ModelError(f"graph output '{o.name}' is listed twice")
            self.graph.outputs.append(o.name)
        if not self.graph.outputs:
            raise ModelError("the model has no outputs")

    def _define(self, tensor: Tensor) -> None:
        if not tensor.name:
            raise ModelError("a tensor has no name")
        if tensor.name in self.graph.tensors:
            raise ModelError(f"tensor '{tensor.name}' is defined twice")
        self.graph.tensors[tensor.name] = tensor

    def visit(self, proto: onnx.NodeProto, depth: int) -> None:
        """Define the outputs of one node: folded, replaced by other nodes, or as a graph node."""
        self.visited += 1
        if self.visited > MAX_NODES:
            raise ModelError(f"the model becomes more than {MAX_NODES} nodes when its loops and functions are expanded")
        label = proto.name or next((o for o in proto.output if o), "") or "unnamed"
        what = f"{proto.op_type} '{label}'"
        captures = subgraphs.captured(proto)
        for name in (*proto.input, *captures):
            if name and name not in self.graph.tensors:
                raise ModelError(f"{what} reads '{name}', which nothing before it makes")
        if is_loops(proto):
            own, made = loops_node(proto, self.graph.tensors, label)
            for t in made.values():
                self._define(t)
            self.graph.nodes.append(own)
            return
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if not domain and proto.op_type == "Loop" and len(proto.input) >= 2:
            tensors = self.graph.tensors
            proto, same = known_courses.without_kept_states(proto, what, lambda n: tensors[n].dtype is not None)
            for output, state in same.items():
                self.visit(onnx.NodeProto(op_type="Identity", input=[state], output=[output]), depth)
            outside, proto = with_rows_outside(proto, what, self._trips, self._surroundings())
            for n in outside:
                self.visit(n, depth)
            captures = subgraphs.captured(proto)
        if not domain and depth < MAX_DEPTH and self._flattened(proto, what, depth):
            return
        if contrib.contributed(proto) and self._contributed(proto, what, depth):
            return
        if domain == classical.DOMAIN and depth < MAX_DEPTH and self._classical(proto, what, depth):
            return
        if not domain and self._without_sequences(proto, what, depth):
            return
        reads = [*proto.input, *captures]
        if any(is_symbolic(self.graph.tensors[n]) for n in reads if n):
            self._keep_symbolic(proto, what, captures, depth)
            return
        proto = self._known_empty(proto)
        reads = [*proto.input, *captures]
        if domain == contrib.DOMAIN:
            outputs = contrib.infer(proto, self.graph.tensors, what)
        else:
            outputs = infer(proto, self.graph.tensors, reads, self.graph.opsets, what)
        if proto.op_type == "Split" and not domain:
            proto = self._without_empty_pieces(proto, outputs)
        attrs = attributes(proto, what)
        node = Node(label, proto.op_type, list(proto.input), list(proto.output), attrs, domain, captures, proto)
        if not domain and proto.op_type in bodies.KINDS and depth < MAX_DEPTH:
            outputs |= self._give_bodies(node, proto, what)
        constants = folded(self.graph, node, outputs, what, self.portable)
        if constants is not None:
            self.folded += 1
            for t in constants:
                self._define(t)
            return
        if depth < MAX_DEPTH and self._by_definition(node, outputs, depth):
            return
        for t in outputs.values():
            self._define(t)
        self.graph.nodes.append(node)
        known_by_import(self.graph, node)

    def _without_sequences(self, proto: onnx.NodeProto, what: str, depth: int) -> bool:
        """Whether nodes on tensors have taken the place of one that makes or reads a sequence of known length."""
        if "Sequence" in proto.op_type or (proto.input and proto.input[0] in self.sequences.elements):
            check_form(proto, self.graph.opsets, what)
        if proto.op_type == "SplitToSequence":
            pieces = self.sequences.split(proto, attributes(proto, what), self._shape_of_first(proto))
            if pieces is not None:
                self._body(pieces, depth)
        self.sequences.note(proto)
        part = self.sequences.replacement(proto, attributes(proto, what))
        if part is not None:
            self._body(part, depth)
        return part is not None

    def _give_bodies(self, node: Node, proto: onnx.NodeProto, what: str) -> Mapping[str, Tensor]:
        """Give a node of control flow its bodies as graphs; outputs that these tell more of."""
        opset = self.graph.opsets.get("", 1)
        trips = self._trips(proto, what) if proto.op_type == "Loop" else None
        found = bodies.find(proto, node.attrs, self.graph.tensors, opset, self._subgraph, what, trips)
        if isinstance(found, str):
            self.graph.notes.append(f"{what} runs on the host: {found}")
            return {}
        node.bodies = found.graphs
        self.graph.notes += found.notes
        return found.outputs

    def _trips(self, proto: onnx.NodeProto, what: str) -> int | None:
        loop = tuple(proto.output)
        if loop not in self.trips:
            self.trips[loop] = known_courses.trips(proto, what, self.graph.constant, self.graph.opsets)
        return self.trips[loop]

    def _surroundings(self) -> unrolling.Surroundings:
        """What loops need of the graph so far."""
        tensors, elements = self.graph.tensors, self.sequences.elements
        return unrolling.Surroundings(
            self.graph.constant, lambda n: tensors[n].shape if n else None, elements.__contains__, self.graph.fresh,
            self.graph.opsets.get("", 1),
        )  # fmt: skip

    def _shape_of_first(self, proto: onnx.NodeProto) -> tuple[Any, ...] | None:
        return self.graph.tensors[proto.input[0]].shape if proto.input and proto.input[0] else None

    def _keep_symbolic(self, proto: onnx.NodeProto, what: str, captures: tuple[str, ...], depth: int) -> None:
        """A node that reads something of symbolic size: its results are formulas, or its value is one."""
        assert self.graph.symbols is not None
        attrs = attributes(proto, what)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        label = what.partition("'")[2][:-1]
        node = Node(label, proto.op_type, list(proto.input), list(proto.output), attrs, domain, captures, proto)
        outputs = infer_symbolic(node, proto, self.graph.tensors, self.graph.opsets, self.graph.symbols, what)
        if all(t.sizes is not None or t.const is not None for t in outputs.values()):
            self.folded += 1
        else:
            with self.graph.symbols.at(what):
                if depth < MAX_DEPTH and self._by_definition(node, outputs, depth):
                    return
            self.graph.nodes.append(node)
        for t in outputs.values():
            self._define(t)

    def _contributed(self, proto: onnx.NodeProto, what: str, depth: int) -> bool:
        """Put the definition of a `com.microsoft` operator in its place."""
        opset = self.graph.opsets.get("", onnx.defs.onnx_opset_version())
        with sizes_decided(self.graph.symbols, what):
            part = contrib.definition(
                proto, attributes(proto, what), self.graph.tensors, opset, self.graph.fresh, what, self.declared
            )
        if part is None:
            return False
        self._body(part, depth)
        self.defined[proto.op_type] = self.defined.get(proto.op_type, 0) + 1
        return True

    def _classical(self, proto: onnx.NodeProto, what: str, depth: int) -> bool:
        """Put ordinary nodes in the place of an operator of `ai.onnx.ml`."""
        # A model of nothing else need not import ONNX's own operators.
        self.graph.opsets = opsets = {"": onnx.defs.onnx_opset_version(), **self.graph.opsets}
        try:
            with sizes_decided(self.graph.symbols, what):
                part = classical.definition(
                    proto, attributes(proto, what), self.graph.tensors, opsets, self.graph.fresh, what
                )
        except Unsupported as reason:
            self.graph.notes.append(f"{what} is kept as it is: {reason}")
            return False
        if part is None:
            return False
        self._body(part, depth)
        self.defined[proto.op_type] = self.defined.get(proto.op_type, 0) + 1
        return True

    def _by_definition(self, node: Node, outputs: dict[str, Tensor], depth: int) -> bool:
        """Put ONNX's definition of an operator in the place of a node that the library has no loops for."""
        tensors = self.graph.tensors
        inputs = [tensors[i] if i else None for i in node.inputs]
        if node.captures or node.domain == contrib.DOMAIN or not all(t is None or t.static for t in inputs):
            return False
        if has_loops(node, inputs, [outputs[o] for o in node.writes()], self.graph.opsets):
            return False
        types = [onnx.TypeProto() if t is None else type_proto(t) for t in inputs]
        nodes = functions.body(node.proto, types, self.graph.opsets, self.graph.fresh)
        for inner in nodes:
            self.visit(inner, depth + 1)
        if nodes:
            self.defined[node.op_type] = self.defined.get(node.op_type, 0) + 1
        return bool(nodes)

    def _without_empty_pieces(self, proto: onnx.NodeProto, outputs: dict[str, Tensor]) -> onnx.NodeProto:
        """A `Split` of which one piece is everything as an `Identity`; the empty pieces are constants."""
        full = [o for o, t in outputs.items() if not t.static or t.size]
        if len(full) != 1 or len(full) == len(outputs):
            return proto
        for name in [o for o in outputs if o not in full]:
            self._define(zeros(name, outputs.pop(name)))
        return onnx.NodeProto(op_type="Identity", name=proto.name, input=proto.input[:1], output=full)

    def _known_empty(self, proto: onnx.NodeProto) -> onnx.NodeProto:
        """The node with tensors of no elements as constants: nothing of them is left to a run."""
        empty = {
            i: t for i in proto.input
            if i and (t := self.graph.tensors[i]).static and t.size == 0 and t.const is None
        }  # fmt: skip
        if not empty:
            return proto
        changed = onnx.NodeProto()
        changed.CopyFrom(proto)
        for k, name in enumerate(proto.input):
            if name in empty:
                changed.input[k] = self._empty(empty[name])
        return changed

    def _empty(self, like: Tensor) -> str:
        name = f"empty {like.dtype}{list(like.shape or ())}"
        if name not in self.graph.tensors:
            self._define(zeros(name, like))
        return name

    def _flattened(self, proto: onnx.NodeProto, what: str, depth: int) -> bool:
        """Put the bodies of control flow in its place as far as its conditions and counts are known."""
        if proto.op_type == "If":
            return self._splice(proto, what, depth)
        if proto.op_type not in ("Loop", "Scan"):
            return False
        tensors = self.graph.tensors
        check_attribute_types(proto, self.graph.opsets, what)
        around = self._surroundings()
        loop = proto.op_type == "Loop"
        if loop and len(proto.input) < 2:
            return False
        if self._better_rolled(proto, what):
            self.graph.notes.append(f"{what} is not unrolled: its body is compiled once")
            return False
        if loop:
            parts = unrolling.loop(proto, around, what)
        else:
            parts = unrolling.scan(proto, attributes(proto, what), around, what)
        before, nodes, counted = set(tensors), len(self.graph.nodes), (self.folded, dict(self.defined))
        try:
            for part in parts:
                self._body(part, depth)
        except unrolling.NotConstant as reason:
            for name in [n for n in tensors if n not in before]:
                del tensors[name]
                self.sequences.elements.pop(name, None)
            del self.graph.nodes[nodes:]
            self.folded, self.defined = counted
            self.graph.notes.append(f"{what} is not unrolled: {reason}")
            return False
        return True

    def _better_rolled(self, proto: onnx.NodeProto, what: str) -> bool:
        """Whether a loop would become so many nodes that its body is rather compiled once, and can be."""
        body = next((a.g for a in proto.attribute if a.name == "body"), onnx.GraphProto())
        if proto.op_type == "Loop":
            trips = self._trips(proto, what)
        else:
            axis = (attributes(proto, what).get("scan_input_axes") or [0])[-1]
            shape = self.graph.tensors[proto.input[-1]].shape if proto.input and proto.input[-1] else None
            trips = shape[axis] if shape and -len(shape) <= axis < len(shape) else None
        if not isinstance(trips, int) or trips * len(body.node) <= unrolling.MAX_QUICK:
            return False
        opset, tensors = self.graph.opsets.get("", 1), self.graph.tensors
        if any(is_symbolic(tensors[n]) for n in (*proto.input, *subgraphs.captured(proto)) if n):
            return False
        attrs = attributes(proto, what)
        return not isinstance(bodies.find(proto, attrs, tensors, opset, self._subgraph, what), str)

    def _body(self, part: onnx.GraphProto, depth: int) -> None:
        for t in part.initializer:
            value = to_numpy(t, self.folder, f"initializer '{t.name}'")
            self._define(Tensor(t.name, dtype_of(t.data_type), value.shape, value))
        for node in part.node:
            self.visit(node, depth + 1)

    def _subgraph(self, body: onnx.GraphProto, inputs: Sequence[Tensor]) -> Graph:
        """A subgraph as a graph of its own. `inputs`: its own, then captured tensors (constants stay constants)."""
        model = onnx.ModelProto(graph=onnx.GraphProto(name=body.name))
        walker = Walker(model, self.folder, dict(self.graph.opsets), owned=False, portable=self.portable)
        walker.visited = self.visited
        for t in inputs:
            if t.const is None:
                walker.graph.inputs.append(t.name)
            walker._define(t)
        results = [f"{o.name}@result{k}" for k, o in enumerate(body.output)]
        walker._body(body, 0)
        for o, result in zip(body.output, results):
            walker.visit(onnx.NodeProto(op_type="Identity", input=[o.name], output=[result]), 0)
        walker.graph.outputs += results
        self.visited = walker.visited
        make_texts(walker.graph)
        verify(walker.graph)
        return walker.graph

    def _splice(self, proto: onnx.NodeProto, what: str, depth: int) -> bool:
        """Put the branch of an `If` with a known condition in its place."""
        if len(proto.input) != 1:
            return False
        condition = self.graph.constant(proto.input[0])
        if condition is None or condition.size != 1:
            return False
        wanted = "then_branch" if bool(condition.reshape(())) else "else_branch"
        branch = next((a.g for a in proto.attribute if a.name == wanted), None)
        if branch is None or len(branch.output) != len(proto.output):
            raise ModelError(f"{what}: {wanted} is missing or has the wrong number of outputs")
        self._body(subgraphs.instantiate(branch, list(proto.output), self.graph.fresh), depth)
        return True
