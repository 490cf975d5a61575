"""The graph IR: named tensors and nodes in execution order, with a printer.

A `Tensor` knows its dtype and its shape, or neither when only a run can tell (strings,
sequences, data-dependent sizes): such a tensor lives on the host. Extents are numbers, or
formulas of the model's symbolic sizes (`graph/size.py`).
A graph is mutable; passes rewrite it in place and the verifier (`polyc.graph_driver.verifying`) runs between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.poly.dtypes import DType
from polyc.poly.records import dataclass
from polyc.poly.rewriting.stored import Layout, laid_out_shape

if TYPE_CHECKING:
    from polyc.graph_driver.graph.decisions import Decision, Overwriting, Selection
    from polyc.graph_driver.graph.symbols import Symbols


@dataclass(frozen=True)
class Codes:
    """What a dequantised constant was made from: integers, and their zero points (None: 0) and scales, one of each or
    one for each index of `axis`."""

    integers: np.ndarray
    zero: np.ndarray | None
    scale: np.ndarray
    axis: int

    def whole(self) -> np.ndarray:
        """The integers less their zero points."""
        if self.zero is None:
            return self.integers.astype(np.int32)
        shape = [1] * self.integers.ndim
        if self.zero.size > 1:
            shape[self.axis] = self.zero.size
        return self.integers.astype(np.int32) - self.zero.astype(np.int32).reshape(shape)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value. Extents in `shape` are `int` or `Size`. `const` is set for weights and folded results
    (read-only, may be a broadcast view).

    `sizes` holds the elements of a small integer tensor that follows from symbolic sizes, as an
    array of integers and formulas: nothing computes it, its elements are written down before a run.
    `codes`: the constant is a dequantised one. `onnx_type` (an `onnx.TypeProto`) says what a value of
    the host is, as far as it is known. `layout`: how kernels store it, where not by rows.
    """

    name: str
    dtype: DType | None
    shape: tuple[Any, ...] | None
    const: np.ndarray | None = None
    onnx_type: Any = None
    sizes: np.ndarray | None = None
    codes: Codes | None = None
    layout: Layout | None = None

    @property
    def static(self) -> bool:
        """Whether dtype and shape are known before a run."""
        return self.dtype is not None and self.shape is not None

    @property
    def size(self) -> Any:
        """Number of elements (a number or a formula); only of a static tensor."""
        total: Any = 1
        for extent in self.shape or ():
            total *= extent
        return total

    @property
    def nbytes(self) -> Any:
        """Bytes of its storage (a number or a formula), padding included; only of a static tensor."""
        assert self.dtype is not None
        if self.layout is not None:
            return prod(laid_out_shape(self.shape or (), self.layout)) * self.dtype.bytes
        return self.size * self.dtype.bytes

    def __str__(self) -> str:
        if not self.static:
            return f"{self.name}: ?"
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape or ()))}]"


@dataclass
class Node:
    """One operator. Absent optional inputs and outputs are the empty name.

    `captures` are tensors of this graph that subgraphs inside `attrs` refer to. `proto` is the
    `onnx.NodeProto` it came from (None once a pass has changed `attrs`): the host runs it. `bodies` are
    the subgraphs of control flow that stays in the plan (`polyc.graph_driver.importing.bodies`; None: the host
    runs that branch).
    """

    name: str
    op_type: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    captures: tuple[str, ...] = ()
    proto: Any = None
    bodies: tuple[Graph | None, ...] = ()

    def reads(self) -> Iterator[str]:
        """Names of all tensors that the node needs."""
        yield from (i for i in self.inputs if i)
        yield from self.captures

    def writes(self) -> Iterator[str]:
        """Names of all tensors that the node makes."""
        return (o for o in self.outputs if o)

    @property
    def kind(self) -> str:
        """The operator's name, with its domain when it is not ONNX's own."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


@dataclass
class Graph:
    """`nodes` are in a valid execution order. `opsets` maps a domain to its version.

    `decisions` say which nodes joined which kernel and which results overwrite an operand,
    and why others do not, `selections` what each node runs as. `symbols` are the sizes that runs
    decide, None when all are numbers. `checked` and `sound` are what the verifier has found in order, by the node's
    `id` and the tensor's name.
    """

    name: str
    opsets: Mapping[str, int]
    inputs: list[str]
    outputs: list[str]
    tensors: dict[str, Tensor]
    nodes: list[Node]
    notes: list[str] = field(default_factory=list)
    decisions: list[Decision | Overwriting] = field(default_factory=list)
    symbols: Symbols | None = None
    selections: list[Selection] = field(default_factory=list)
    checked: dict[int, Checked] = field(default_factory=dict, repr=False, compare=False)
    sound: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def producers(self) -> dict[str, Node]:
        """Which node makes each tensor."""
        return {o: n for n in self.nodes for o in n.writes()}

    def consumers(self) -> dict[str, list[Node]]:
        """Which nodes read each tensor (a node that reads it twice is there once)."""
        table: dict[str, list[Node]] = {}
        for n in self.nodes:
            for i in dict.fromkeys(n.reads()):
                table.setdefault(i, []).append(n)
        return table

    def constant(self, name: str) -> np.ndarray | None:
        """The tensor's value when it is known, else None (also for an absent input)."""
        return self.tensors[name].const if name else None

    def fresh(self, stem: str) -> str:
        """A tensor name not in use."""
        name, k = stem, 1
        while name in self.tensors:
            name, k = f"{stem}.{k}", k + 1
        return name

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """A node and all that its check has looked at."""

    node: Node
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captures: tuple[str, ...]
    attrs: Mapping[str, Any]
    proto: Any
    bodies: tuple[Graph | None, ...]
    tensors: tuple[Tensor, ...]

    @staticmethod
    def of(graph: Graph, node: Node) -> Checked:
        """The node as it is now."""
        return Checked(
            node, node.op_type, node.domain, tuple(node.inputs), tuple(node.outputs), node.captures,
            {k: tuple(v) if type(v) is list else v for k, v in node.attrs.items()}, node.proto, node.bodies,
            tuple([graph.tensors[n] for n in (*node.reads(), *node.writes())]),
        )  # fmt: skip

    def still(self, tensors: Mapping[str, Tensor], node: Node) -> bool:
        """Whether the node, its operands and its results are what they were."""
        return (
            self.node is node and self.proto is node.proto and self.op_type == node.op_type
            and self.domain == node.domain and self.inputs == tuple(node.inputs)
            and self.outputs == tuple(node.outputs) and self.captures == node.captures and self.bodies is node.bodies
            and _same_attributes(self.attrs, node.attrs)
            and all([tensors[n] is t for n, t in zip((*node.reads(), *node.writes()), self.tensors)])
        )  # fmt: skip


def _same_attributes(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if len(before) != len(now):
        return False
    for key, value in now.items():
        old = before.get(key)
        if value is not old and not (
            tuple(value) == old if type(value) is list else type(value) in (int, float, str) and value == old
        ):
            return False
    return True


def to_text(graph: Graph) -> str:
    """The graph, one node a line; constants are summarised."""
    weights = sum(t.const.nbytes for t in graph.tensors.values() if t.const is not None)
    lines = [f"graph {graph.name}  # {len(graph.nodes)} nodes, {weights / 1e6:.2f} MB of constants"]
    lines += [f"  {line}" for line in (graph.symbols.lines() if graph.symbols is not None else ())]
    lines += [f"  input  {graph.tensors[i]}" for i in graph.inputs]
    for node in graph.nodes:
        left = ", ".join(str(graph.tensors[o]) for o in node.writes())
        lines.append(f"  {left} = {node.kind}({', '.join(_operand(graph, i) for i in node.inputs)}{_attrs(node)})")
    lines += [f"  output {graph.tensors[o]}" for o in graph.outputs]
    return "\n".join(lines)


def _operand(graph: Graph, name: str) -> str:
    if not name:
        return "-"
    tensor = graph.tensors[name]
    if tensor.const is None:
        return name if tensor.sizes is None else str(tensor.sizes.tolist())
    if tensor.size <= 4:
        return np.array2string(np.asarray(tensor.const), separator=",", threshold=8).replace("\n", "")
    return f"const {tensor.dtype}[{','.join(map(str, tensor.shape or ()))}]"


LONG = 200
"""Characters of an attribute that the text for people says in full."""


def _attrs(node: Node) -> str:
    parts = []
    for key, value in sorted(node.attrs.items()):
        if isinstance(value, (int, str, list)):
            parts.append(f"{key}={value}" if len(str(value)) <= LONG else f"{key}=<{len(str(value))} characters>")
        elif isinstance(value, float):
            parts.append(f"{key}={value:g}")
        else:
            parts.append(f"{key}=<{type(value).__name__}>")
    return "; " + " ".join(parts) if parts else ""
