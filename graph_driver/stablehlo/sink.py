"""An ONNX model under construction: values with their types, nodes, loops of the language."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper

from polyc.frontend_dsl import Operator
from polyc.graph_driver.building.construction import OPSET
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.operators.loops import DOMAIN, LOOPS
from polyc.poly import json_io
from polyc.poly.dtypes import DType, bool_, from_numpy, i64
from polyc.poly.records import dataclass

IR_VERSION = 10


@dataclass(frozen=True)
class Val:
    """A value: its name in the model, element type and extents."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class Sink:
    """Nodes go to the list at hand (`inside` changes it), constants to the whole model."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.known: dict[str, np.ndarray] = {}
        self._by_value: dict[tuple[str, tuple[int, ...], bytes], Val] = {}
        self._count = itertools.count()
        self.label = ""
        """Of nodes: the operation and its line."""

    @contextmanager
    def inside(self) -> Iterator[list[onnx.NodeProto]]:
        """Nodes of a subgraph: the list that they go to."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    def fresh(self) -> str:
        """A name that is not in use."""
        return f"v{next(self._count)}"

    def constant(self, array: np.ndarray, dtype: DType | None = None) -> Val:
        """A constant; equal ones are one."""
        dtype = dtype or from_numpy(array.dtype)
        array = np.ascontiguousarray(array, dtype.np).reshape(np.shape(array))
        key = dtype.name, array.shape, array.tobytes()
        if key not in self._by_value:
            name = f"c{next(self._count)}"
            self.constants[name] = helper.make_tensor(name, elem_type_of(dtype), array.shape, array.tobytes(), raw=True)
            self.known[name] = array
            self._by_value[key] = Val(name, dtype, array.shape)
        return self._by_value[key]

    def integers(self, numbers: Sequence[int]) -> Val:
        """A list of i64."""
        return self.constant(np.asarray(list(numbers), np.int64), i64)

    def node(self, kind: str, operands: Sequence[Val | None], *types: tuple[DType, Sequence[int]], **attrs: Any) -> Val:
        """A node; its first result."""
        return self.several(kind, operands, types, **attrs)[0]

    def several(
        self, kind: str, operands: Sequence[Val | None], types: Sequence[tuple[DType, Sequence[int]]], **attrs: Any
    ) -> list[Val]:
        """A node with all of its results."""
        made = [Val(self.fresh(), d, tuple(s)) for d, s in types]
        names = ["" if o is None else o.name for o in operands]
        self.nodes.append(helper.make_node(kind, names, [v.name for v in made], name=self._name(), **attrs))
        return made

    def _name(self) -> str:
        return f"{self.label} {next(self._count)}"

    def loops(self, operator: Operator, operands: Sequence[Val], shapes: Sequence[Sequence[int]]) -> list[Val]:
        """An operator of the language as a node that brings its loops; its results have these shapes."""
        scop = operator.scop()
        made = [Val(self.fresh(), scop.arrays[r].dtype, tuple(s)) for r, s in zip(scop.results, shapes, strict=True)]
        self.nodes.append(helper.make_node(
            LOOPS, [o.name for o in operands], [v.name for v in made], name=self._name(), domain=DOMAIN,
            scop=json_io.dumps(scop),
        ))  # fmt: skip
        return made

    # ---- what many operations need ----

    def reshape(self, x: Val, shape: Sequence[int]) -> Val:
        """The same elements in another shape."""
        if tuple(shape) == x.shape:
            return x
        if x.name in self.known:
            return self.constant(self.known[x.name].reshape(tuple(shape)), x.dtype)
        return self.node("Reshape", [x, self.integers(shape)], (x.dtype, shape), allowzero=1)

    def transpose(self, x: Val, order: Sequence[int]) -> Val:
        """Axis `k` of the result is axis `order[k]` of the operand."""
        if list(order) == list(range(x.rank)):
            return x
        return self.node("Transpose", [x], (x.dtype, [x.shape[k] for k in order]), perm=list(order))

    def cast(self, x: Val, dtype: DType) -> Val:
        """The value in another element type, as C converts."""
        if x.dtype == dtype:
            return x
        if dtype == bool_:
            zero = self.constant(np.zeros((), x.dtype.np), x.dtype)
            return self.node("Not", [self.node("Equal", [x, zero], (bool_, x.shape))], (bool_, x.shape))
        return self.node("Cast", [x], (dtype, x.shape), to=elem_type_of(dtype))

    def expand(self, x: Val, shape: Sequence[int]) -> Val:
        """Repeated along axes of extent 1, and new ones in front."""
        if tuple(shape) == x.shape:
            return x
        return self.node("Expand", [x, self.integers(shape)], (x.dtype, shape))

    def slices(self, x: Val, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> Val:
        """Every `step`-th index from `start` up to `stop` on each axis."""
        shape = [max(0, -(-(b - a) // s)) for a, b, s in zip(start, stop, step, strict=True)]
        if tuple(shape) == x.shape:
            return x
        lists = [self.integers(v) for v in (start, stop, range(x.rank), step)]
        return self.node("Slice", [x, *lists], (x.dtype, shape))


@cache
def accepts(kind: str, dtype: DType) -> bool:
    """Whether the first operand of an ONNX operator may have this element type."""
    schema = defs.get_schema(kind, OPSET)
    wanted = f"tensor({helper.tensor_dtype_to_string(elem_type_of(dtype)).rpartition('.')[2].lower()})"
    return wanted in schema.inputs[0].types
