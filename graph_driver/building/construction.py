"""A graph under construction, node by node: what front ends that make graphs themselves work with (PyTorch's, traces).

Nodes are ONNX's operators: the importer's walk infers types and shapes, and computes what constants decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.graph.python_calls import DOMAIN, PythonCall
from polyc.graph_driver.graph.size import Size
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.importing.importer import Walker
from polyc.graph_driver.operators.loops import DOMAIN as OWN
from polyc.graph_driver.operators.loops import LOOPS
from polyc.poly import json_io
from polyc.poly.dtypes import DType, bool_, f32, i64
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

OPSET = 26
"""The version of ONNX's operators that graphs are made of."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph under construction: its name, element type and extents (numbers, or formulas of symbolic
    sizes)."""

    name: str
    dtype: DType
    shape: tuple[Any, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements."""
        return prod(self.shape)

    def axis(self, axis: int) -> int:
        """An axis counted from the first, 0 of a scalar."""
        return axis % self.rank if self.rank else 0


@dataclass(frozen=True)
class Foreign:
    """A tensor of an element type that polyc has not: only eager steps make and read it."""

    name: str
    shape: tuple[int, ...]


Operand = Value | int | float | bool


class Construction:
    """A graph under construction. Shapes and types of results are inferred as those of ONNX models; what constants
    alone decide is computed at once."""

    def __init__(self, name: str, symbols: Symbols | None = None) -> None:
        """`symbols`: of the sizes that stay symbolic."""
        self.walker = Walker(ModelProto(graph=GraphProto(name=name)), None, {"": OPSET}, owned=True)
        self.walker.graph.symbols = symbols
        self._constants: dict[Any, Value] = {}
        self._count = 0
        self.where = ""
        """What is at hand: nodes and tensors are named after it."""

    @property
    def graph(self) -> Graph:
        """What has been built so far."""
        return self.walker.graph

    # ---- leaves ----

    def input(self, name: str, dtype: DType, shape: Sequence[Any]) -> Value:
        """Another input."""
        self.graph.tensors[name] = Tensor(name, dtype, tuple(shape))
        self.graph.inputs.append(name)
        return self.value(name)

    def value(self, name: str) -> Value:
        """A tensor of the graph."""
        tensor = self.graph.tensors[name]
        assert tensor.dtype is not None and tensor.shape is not None, name
        return Value(name, tensor.dtype, tuple(tensor.shape))

    def constant(self, value: Any, dtype: DType) -> Value:
        """A constant; equal small ones are one tensor."""
        array = np.asarray(value).astype(dtype.np)
        key = (dtype.name, array.shape, array.tobytes()) if array.size <= 64 else id(array)
        if key not in self._constants:
            name = self.graph.fresh(f"constant{len(self._constants)}")
            self.graph.tensors[name] = Tensor(name, dtype, array.shape, array)
            self._constants[key] = self.value(name)
        return self._constants[key]

    def integers(self, values: Sequence[Any]) -> Value:
        """A list of sizes (numbers or formulas), axes or positions as ONNX takes it."""
        if any(isinstance(n, Size) for n in values):
            name = self.graph.fresh(f"sizes{len(self.graph.tensors)}")
            sizes = np.array([*values], dtype=object)
            self.graph.tensors[name] = Tensor(name, i64, sizes.shape, sizes=sizes)
            return self.value(name)
        return self.constant(np.asarray(list(values), np.int64), i64)

    def known(self, x: Value) -> np.ndarray | None:
        """The value where it is known already, else None."""
        return self.graph.tensors[x.name].const

    def full(self, fill: Any, dtype: DType, shape: Sequence[Any]) -> Value:
        """A constant of one number, stored once."""
        if any(isinstance(n, Size) for n in shape):
            return self.op("Expand", self.constant(fill, dtype), self.integers(shape))
        name = self.graph.fresh(f"full{len(self.graph.tensors)}")
        array = np.broadcast_to(np.asarray(fill).astype(dtype.np), tuple(shape))
        self.graph.tensors[name] = Tensor(name, dtype, array.shape, array)
        return self.value(name)

    # ---- nodes ----

    def op(self, kind: str, *operands: Operand | None, **attributes: Any) -> Value:
        """An ONNX operator with one result. Numbers among the operands get the type of the first tensor; None is an
        absent operand.

        Raises:
            ModelError: ONNX refuses the operands.
        """
        return self.ops(kind, 1, *operands, **attributes)[0]

    def ops(self, kind: str, results: int, *operands: Operand | None, **attributes: Any) -> list[Value]:
        """An ONNX operator with several results. Raises as `op`."""
        like = next((x.dtype for x in operands if isinstance(x, Value)), f32)
        names = []
        for x in operands:
            if x is None:
                names.append("")
            else:
                names.append((x if isinstance(x, Value) else self.constant(x, like)).name)
        outputs = [self._fresh() for _ in range(results)]
        attributes = {k: v for k, v in attributes.items() if v is not None}
        self.visit(helper.make_node(kind, names, outputs, name=self._label(), **attributes))
        return [self.value(o) for o in outputs]

    def visit(self, proto: NodeProto) -> None:
        """Another node, whose results are defined by it. Raises `ModelError`: ONNX refuses the operands."""
        self.walker.visit(proto, 0)

    def loops(self, scop: Scop, operands: Sequence[Value], shapes: Sequence[Sequence[int]]) -> list[Value]:
        """A node of the loops of `scop`, whose results have these shapes."""
        outputs = [self._fresh() for _ in scop.results]
        for name, array, shape in zip(outputs, scop.results, shapes, strict=True):
            self.graph.tensors[name] = Tensor(name, scop.arrays[array].dtype, tuple(shape))
        attributes = {"scop": json_io.dumps(scop)}
        node = Node(self._label(), LOOPS, [x.name for x in operands], outputs, attributes, OWN)
        self.graph.nodes.append(node)
        return [self.value(o) for o in outputs]

    def python(
        self, call: PythonCall, operands: Sequence[Value | Foreign],
        results: Sequence[tuple[DType | None, Sequence[int]]], kind: str,
    ) -> list[Value | Foreign]:  # fmt: skip
        """A node that runs as a Python function, with results of these types and shapes."""
        outputs = [self._fresh() for _ in results]
        for name, (dtype, shape) in zip(outputs, results, strict=True):
            self.graph.tensors[name] = Tensor(name, dtype, None if dtype is None else tuple(shape))
        node = Node(self._label(), kind, [x.name for x in operands], outputs, {"call": call}, DOMAIN)
        self.graph.nodes.append(node)
        return [
            Foreign(o, tuple(shape)) if dtype is None else self.value(o)
            for o, (dtype, shape) in zip(outputs, results, strict=True)
        ]

    def foreign(self, name: str, shape: Sequence[int]) -> Foreign:
        """Another input, of an element type that polyc has not."""
        self.graph.tensors[name] = Tensor(name, None, None)
        self.graph.inputs.append(name)
        return Foreign(name, tuple(shape))

    def _fresh(self) -> str:
        self._count += 1
        return self.graph.fresh(f"{self.where}.{self._count}")

    def _label(self) -> str:
        return f"{self.where}.{len(self.graph.nodes)}"

    # ---- what many operators need ----

    def cast(self, x: Value, dtype: DType) -> Value:
        """The value in another element type."""
        if x.dtype == dtype:
            return x
        if dtype == bool_:
            return self.op("Not", self.op("Equal", x, 0))
        return self.op("Cast", x, to=elem_type_of(dtype))

    def reshape(self, x: Value, shape: Sequence[Any]) -> Value:
        """The same elements in another shape (of numbers, no -1)."""
        if tuple(shape) == x.shape:
            return x
        return self.op("Reshape", x, self.integers(shape), allowzero=1)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Axis `k` of the result is axis `order[k]` of the operand."""
        return x if list(order) == list(range(x.rank)) else self.op("Transpose", x, perm=list(order))

    def expand(self, x: Value, shape: Sequence[Any]) -> Value:
        """Repeated along axes of extent 1, and new ones in front."""
        return x if tuple(shape) == x.shape else self.op("Expand", x, self.integers(shape))

    def slice(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Every `step`-th index from `start` up to `stop` of an axis."""
        if (start, step) == (0, 1) and stop >= x.shape[axis]:
            return x
        return self.op("Slice", x, *map(self.integers, ([start], [stop], [axis], [step])))

    def flip(self, x: Value, axes: Sequence[int]) -> Value:
        """In reverse order along these axes."""
        if not axes:
            return x
        last = [-(1 << 62)] * len(axes)
        return self.op("Slice", x, *map(self.integers, ([-1] * len(axes), last, axes, [-1] * len(axes))))

    def sum(self, x: Value, axes: Sequence[int], keep: bool = False) -> Value:
        """The sum over axes."""
        return self.op("ReduceSum", x, self.integers(axes), keepdims=int(keep)) if axes else x

    def moved_last(self, x: Value, axis: int) -> tuple[Value, list[int]]:
        """With one axis behind the others, and the order of axes that undoes it."""
        order = [k for k in range(x.rank) if k != axis] + [axis]
        return self.transpose(x, order), [order.index(k) for k in range(x.rank)]

    def computed(self, x: Value) -> Value:
        """For arithmetic that is made of several steps: halves in f32."""
        return self.cast(x, f32) if x.dtype.is_float and x.dtype.bits < 32 else x
