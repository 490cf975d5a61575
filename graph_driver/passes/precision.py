"""Precision assignment: a model in f32 computed with tensors of f16 or bf16.

Every node that ONNX defines for the narrow type gets it, but those of `WIDE` and those that the user names:
their results leave its range or lose too much. Casts stand only where a node of one kind meets one of the
other (once a tensor), inputs and outputs of the model keep their type, and constants are rounded when the
model is compiled. Sums of many terms are taken in f32 whatever the operands (`polyc.graph_driver.operators.halves`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import onnx.defs

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.poly.dtypes import BY_NAME, DType, f32
from polyc.poly.errors import ArgumentError

NARROW = {"f16": "tensor(float16)", "bf16": "tensor(bfloat16)"}
WIDE = frozenset(
    ("Exp", "Pow", "Log", "Reciprocal", "ReduceSumSquare", "ReduceL2", "ReduceProd", "ReduceLogSum",
     "ReduceLogSumExp", "ReduceSum", "CumSum", "LpNormalization", "Softplus")
)  # fmt: skip
"""Operators whose results for moderate operands need the range of f32, or all of whose bits are looked at."""


CAST = "cast "  # begins the names of the casts that are put in


def is_added_cast(node: Node) -> bool:
    """Whether the node is a cast of this pass and not of the model."""
    return node.op_type == "Cast" and node.proto is None and node.name.startswith(CAST)


def assign_precision(graph: Graph, dtype: str, keep: Collection[str] = ()) -> dict[str, int]:
    """Give nodes the type `dtype` (a key of `NARROW`) but those in `keep` (operators or node names).

    Raises:
        ArgumentError: there is no such type, or nothing in the model has a name in `keep`.
    """
    if dtype not in NARROW:
        raise ArgumentError(f"no precision '{dtype}': it is {' or '.join(NARROW)}")
    known = {n.op_type for n in graph.nodes} | {n.name for n in graph.nodes}
    for name in keep:
        if name not in known:
            raise ArgumentError(f"'{name}' is no operator and no node of the model: nothing to keep in f32")
    wide = {*WIDE, *keep}
    ports = {
        id(n): _narrow_ports(graph, n, NARROW[dtype]) if not wide & {n.op_type, n.name} else [] for n in graph.nodes
    }
    counts = _Assignment(graph, BY_NAME[dtype], ports).run()
    stay = sorted({n.op_type for n in graph.nodes if not ports.get(id(n), True) and _computes(graph, n)})
    graph.notes.append(
        f"{dtype}: {counts['nodes']} nodes, {counts['casts']} casts; in f32: {', '.join(stay) or 'nothing'}"
    )
    return counts


def _computes(graph: Graph, node: Node) -> bool:
    return any(graph.tensors[o].dtype == f32 for o in node.writes())


def _narrow_ports(graph: Graph, node: Node, type_text: str) -> list[str]:
    """The f32 tensors of a node that may have the narrow type together; empty where one of its results may not."""
    if node.domain or node.captures or node.bodies or node.op_type == "Cast":
        return []
    schema = onnx.defs.get_schema(node.op_type, graph.opsets[""])
    # Later versions of an operator allow more types (bf16 came late); ours takes them at every version.
    versions = (schema, onnx.defs.get_schema(node.op_type))
    free = {c.type_param_str for s in versions for c in s.type_constraints if type_text in c.allowed_type_strs}
    inputs = list(_typed(node.inputs, schema.inputs))
    decided = {t for name, t in inputs if graph.tensors[name].dtype == f32} & free
    results = [(name, t) for name, t in _typed(node.outputs, schema.outputs) if graph.tensors[name].dtype == f32]
    if not decided or any(t not in decided for _, t in results):
        return []
    taken = [name for name, t in (*inputs, *results) if t in decided and graph.tensors[name].dtype == f32]
    return list(dict.fromkeys(taken))


def _typed(names: list[str], formal: list[onnx.defs.OpSchema.FormalParameter]) -> Iterator[tuple[str, str]]:
    """Present operands with the type parameter of each; the last formal one may stand for several."""
    for k, name in enumerate(names):
        if name:
            yield name, formal[min(k, len(formal) - 1)].type_str


class _Assignment:
    """The rewriting: tensors in the narrow type beside those in f32, each made when somebody wants it."""

    def __init__(self, graph: Graph, dtype: DType, ports: dict[int, list[str]]) -> None:
        self.graph, self.dtype, self.ports = graph, dtype, ports
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
                    self.cast(narrow, wide, f32)
                else:
                    del self.graph.tensors[wide]
        self.graph.nodes = self.nodes
        return self.counts

    def fresh(self, name: str) -> str:
        """A narrow tensor beside the f32 tensor `name`."""
        tensor = self.graph.tensors[name]
        narrow = self.graph.fresh(f"{name} {self.dtype}")
        const = None if tensor.const is None else _rounded(tensor.const, self.dtype)
        self.graph.tensors[narrow] = Tensor(narrow, self.dtype, tensor.shape, const)
        self.narrow[name] = narrow
        return narrow

    def narrowed(self, name: str) -> str:
        """The narrow form of an f32 tensor; a cast is added where nobody makes it."""
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
