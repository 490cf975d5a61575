"""Precision assignment: a model in f32 computed with tensors of f16 or bf16, and types that a target does not have.

Every node that ONNX defines for the narrow type gets it, but those of `WIDE` and those that the user names:
their results leave its range or lose too much; nodes that only move elements have the type with the fewest casts
(`polyc.graph_driver.choosing.mixed_types`). Casts stand only where a node of one kind meets one of the other (once a
tensor), inputs and outputs of the model keep their type, and constants are rounded when the model is compiled. Sums of
many terms are taken in f32 whatever the operands (`polyc.graph_driver.operators.halves`).
Which nodes are narrow with `auto` is measured (`polyc.graph_driver.narrowing.choice`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import onnx.defs

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.graph.precisions import BF16, F16, INT8, MEASURED
from polyc.graph_driver.passes.naming import check_names, is_named
from polyc.graph_driver.passes.row_codes import use_row_codes
from polyc.poly.dtypes import BY_NAME, DType, f16, f32, f64
from polyc.poly.errors import ArgumentError
from polyc.poly.hooks import resolve
from polyc.poly.records import dataclass

TYPE_TEXTS = {"f16": "tensor(float16)", "bf16": "tensor(bfloat16)", "f32": "tensor(float)", "f64": "tensor(double)"}
NARROW = (F16, BF16)
WIDE = frozenset(
    ("Exp", "Pow", "Log", "Reciprocal", "ReduceSumSquare", "ReduceL2", "ReduceProd", "ReduceLogSum",
     "ReduceLogSumExp", "ReduceSum", "CumSum", "LpNormalization", "Softplus")
)  # fmt: skip
"""Operators whose results for moderate operands need the range of f32, or all of whose bits are looked at."""


CAST = "cast "  # begins the names of the casts that are put in


def is_added_cast(node: Node) -> bool:
    """Whether the node is a cast of this pass and not of the model."""
    return node.op_type == "Cast" and node.proto is None and node.name.startswith(CAST)


@dataclass(frozen=True)
class Precision:
    """What an f32 model is computed in: one of `polyc.graph_driver.graph.precisions` but f32.

    `keep_f32` (operators, nodes or their results) stay wide, and with `narrow_only` all that it does not name.
    `max_error`: of `auto` and `int8`, the largest error of an output, relative to the root of the mean square of its
    values in f32. `data`: what it is measured on, for each input an array of samples; random operands where there is
    none.
    """

    kind: str
    keep_f32: Sequence[str] = ()
    narrow_only: Sequence[str] = ()
    max_error: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, graph: Graph) -> dict[str, int]:
        """Change the graph. Raises `ArgumentError`: nothing in the model has a name that is given."""
        keep: Collection[str] = self.kept(graph)
        if self.kind not in MEASURED:
            return make_narrow(graph, self.kind, keep)
        kind, keep, notes = resolve("narrow_choice")(graph, self, keep)
        counts = make_narrow(graph, kind, keep)
        graph.notes += notes
        return counts

    def kept(self, graph: Graph) -> frozenset[str]:
        """The names of what stays wide, whatever is measured. Raises `ArgumentError`: there is no such name."""
        check_names(graph, self.keep_f32, "to keep in f32")
        check_names(graph, self.narrow_only, "to make narrow")
        if not self.narrow_only:
            return frozenset(self.keep_f32)
        others = (n for n in graph.nodes if not is_named(n, self.narrow_only))
        return frozenset((*self.keep_f32, *(o for n in others for o in n.writes())))


def make_narrow(graph: Graph, kind: str, keep: Collection[str]) -> dict[str, int]:
    """Compute in a type of `NARROW`, or in codes (`int8`), what is not in `keep` (operators, nodes, results)."""
    if kind == INT8:
        return use_row_codes(graph, keep)
    return assign_precision(graph, kind, keep)


def assign_precision(graph: Graph, dtype: str, keep: Collection[str] = ()) -> dict[str, int]:
    """Give nodes the type `dtype` (one of `NARROW`) but those in `keep` (operators, nodes or their results): fewest
    that compute in another, then fewest casts, then fewest bytes.

    Raises:
        ArgumentError: there is no such type.
    """
    if dtype not in NARROW:
        raise ArgumentError(f"no precision '{dtype}': it is {' or '.join(NARROW)}")
    from polyc.graph_driver.choosing.mixed_types import choose_types

    nodes, to = [*graph.nodes], BY_NAME[dtype]
    may = [[] if n.op_type in WIDE else ports_of(graph, n, f32, TYPE_TEXTS[dtype]) for n in nodes]
    narrow, _ = choose_types(graph, f32, to, may, [is_named(n, keep) for n in nodes])
    ports = {id(n): own if chosen else [] for n, own, chosen in zip(nodes, may, narrow, strict=True)}
    counts = _Assignment(graph, f32, to, ports).run()
    stay = sorted({n.op_type for n in graph.nodes if not ports.get(id(n), True) and _computes(graph, n)})
    graph.notes.append(
        f"{dtype}: {counts['nodes']} nodes, {counts['casts']} casts; in f32: {', '.join(stay) or 'nothing'}"
    )
    return counts


def use_types_of(graph: Graph, floats: Collection[str], allow_downcast: bool) -> dict[str, int]:
    """Compute in f32 what the target, which has the types `floats`, cannot: f16 always, f64 where that is allowed.

    Raises:
        ArgumentError: the model computes in f64.
    """
    total = {"nodes": 0, "casts": 0}
    for source in (f64, f16):
        if source.name in floats or not any(_has(graph, n, source) for n in graph.nodes):
            continue
        if source == f64 and not allow_downcast:
            raise ArgumentError(
                "the model computes in f64, which the target does not have: --allow-downcast computes it in f32"
            )
        ports = {id(n): ports_of(graph, n, source, TYPE_TEXTS[f32.name]) for n in graph.nodes}
        counts = _Assignment(graph, source, f32, ports).run()
        left = sorted({n.op_type for n in graph.nodes if n.op_type != "Cast" and _has(graph, n, source)})
        if left:
            raise ArgumentError(f"{', '.join(left)} in {source}, which the target does not have, cannot be in f32")
        graph.notes.append(
            f"{source} is computed in f32 on this target: {counts['nodes']} nodes, {counts['casts']} casts"
        )
        total = {k: n + counts[k] for k, n in total.items()}
    return total


def _has(graph: Graph, node: Node, dtype: DType) -> bool:
    return any(graph.tensors[n].dtype == dtype for n in (*node.reads(), *node.writes()))


def _computes(graph: Graph, node: Node) -> bool:
    return any(graph.tensors[o].dtype == f32 for o in node.writes())


def ports_of(graph: Graph, node: Node, source: DType, type_text: str) -> list[str]:
    """The tensors of type `source` of a node that may have the other together; empty where one of its results may
    not."""
    if node.domain or node.captures or node.bodies or node.op_type == "Cast":
        return []
    schema = onnx.defs.get_schema(node.op_type, graph.opsets[""])
    # Later versions of an operator allow more types (bf16 came late); ours takes them at every version.
    versions = (schema, onnx.defs.get_schema(node.op_type))
    free = {c.type_param_str for s in versions for c in s.type_constraints if type_text in c.allowed_type_strs}
    inputs = list(_typed(node.inputs, schema.inputs))
    decided = {t for name, t in inputs if graph.tensors[name].dtype == source} & free
    results = [(name, t) for name, t in _typed(node.outputs, schema.outputs) if graph.tensors[name].dtype == source]
    if not decided or any(t not in decided for _, t in results):
        return []
    taken = [name for name, t in (*inputs, *results) if t in decided and graph.tensors[name].dtype == source]
    return list(dict.fromkeys(taken))


def _typed(names: list[str], formal: list[onnx.defs.OpSchema.FormalParameter]) -> Iterator[tuple[str, str]]:
    """Present operands with the type parameter of each; the last formal one may stand for several."""
    for k, name in enumerate(names):
        if name:
            yield name, formal[min(k, len(formal) - 1)].type_str


class _Assignment:
    """The rewriting: tensors in the other type beside those as given, each made when somebody wants it."""

    def __init__(self, graph: Graph, source: DType, dtype: DType, ports: dict[int, list[str]]) -> None:
        self.graph, self.source, self.dtype, self.ports = graph, source, dtype, ports
        self.narrow: dict[str, str] = {}
        self.nodes: list[Node] = []
        self.counts = {"nodes": 0, "casts": 0}
        self.wanted_wide = set(graph.outputs)
        for n in graph.nodes:
            self.wanted_wide |= set(n.reads()) - set(ports[id(n)])

    def run(self) -> dict[str, int]:
        for node in self.graph.nodes:
            taken = set(self.ports[id(node)])
            if not taken:
                self.nodes.append(node)
                continue
            self.counts["nodes"] += 1
            inputs = [self.narrowed(i) if i in taken else i for i in node.inputs]
            results = {o: self.fresh(o) for o in node.writes() if o in taken}
            made = Node(node.name, node.op_type, inputs, [results.get(o, o) for o in node.outputs], node.attrs)
            self.ports[id(made)] = [*taken]
            self.nodes.append(made)
            for wide, narrow in results.items():
                if wide in self.wanted_wide:
                    self.cast(narrow, wide, self.source)
                else:
                    del self.graph.tensors[wide]
        self.graph.nodes = self.nodes
        return self.counts

    def fresh(self, name: str) -> str:
        """A tensor of the other type beside the tensor `name`."""
        tensor = self.graph.tensors[name]
        narrow = self.graph.fresh(f"{name} {self.dtype}")
        const = None if tensor.const is None else _rounded(tensor.const, self.dtype)
        self.graph.tensors[narrow] = Tensor(narrow, self.dtype, tensor.shape, const)
        self.narrow[name] = narrow
        return narrow

    def narrowed(self, name: str) -> str:
        """The other form of a tensor; a cast is added where nobody makes it."""
        if name not in self.narrow:
            narrow = self.fresh(name)
            if self.graph.tensors[narrow].const is None:
                self.cast(name, narrow, self.dtype)
        return self.narrow[name]

    def cast(self, source: str, result: str, to: DType) -> None:
        self.counts["casts"] += 1
        name = self.graph.fresh(f"{CAST}{result}")
        self.nodes.append(Node(name, "Cast", [source], [result], {"to": elem_type_of(to)}))


def _rounded(value: np.ndarray, dtype: DType) -> np.ndarray:
    """Nearest values; finite numbers beyond the range become its ends, not infinities: a mask of -1e9 that is
    multiplied by zero must stay zero."""
    import ml_dtypes

    limit = np.float32(ml_dtypes.finfo(dtype.np).max)
    kept = np.where(np.isfinite(value), np.clip(value, -limit, limit), value)
    return kept.astype(dtype.np, order="C")
