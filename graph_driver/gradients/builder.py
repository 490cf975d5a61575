"""Adding nodes to a graph: types and shapes are inferred, and what is constant is computed at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import helper

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import attributes
from polyc.graph_driver.importing.folding import folded
from polyc.graph_driver.inference.concrete import infer
from polyc.graph_driver.operators.loops import DOMAIN, LOOPS
from polyc.poly import json_io
from polyc.poly.dtypes import DType, from_numpy, i64
from polyc.poly.scop import Scop


class Builder:
    """Appends nodes to `graph`, whose sizes are numbers and whose operators are those of opset 18 or later.

    Tensors are named after `stem` (of the node whose gradient is being made).
    """

    def __init__(self, graph: Graph, stem: str = "", moving: frozenset[str] = frozenset()) -> None:
        """`moving`: tensors whose gradients somebody wants."""
        self.graph, self.stem, self.moving = graph, stem, moving

    def wanted(self, name: str) -> bool:
        """Whether somebody wants the gradient of a tensor."""
        return name in self.moving

    def shape(self, name: str) -> tuple[int, ...]:
        """Extents of a tensor."""
        return tuple(self.graph.tensors[name].shape or ())

    def dtype(self, name: str) -> DType:
        """Element type of a tensor."""
        dtype = self.graph.tensors[name].dtype
        assert dtype is not None
        return dtype

    def rank(self, name: str) -> int:
        """Number of dimensions."""
        return len(self.shape(name))

    def constant(self, value: Any, dtype: DType | None = None) -> str:
        """A tensor with this value."""
        array = np.asarray(value) if dtype is None else np.asarray(value, dtype.np)
        name = self.graph.fresh(f"{self.stem}.constant")
        self.graph.tensors[name] = Tensor(name, from_numpy(array.dtype), array.shape, array)
        return name

    def integers(self, values: Sequence[int]) -> str:
        """A constant list of integers: axes, sizes."""
        return self.constant(list(values), i64)

    def number(self, value: float, like: str) -> str:
        """A constant scalar of the type of the tensor `like`."""
        return self.constant(value, self.dtype(like))

    def op(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """A node with one result; its name. Raises `ModelError`: the operands do not fit."""
        return self.ops(op_type, inputs, 1, **attrs)[0]

    def ops(self, op_type: str, inputs: Sequence[str], results: int, domain: str = "", **attrs: Any) -> list[str]:
        """A node with several results. Raises `ModelError`: the operands do not fit."""
        outputs = self._fresh(op_type, results)
        proto = helper.make_node(op_type, list(inputs), outputs, name=outputs[0], domain=domain, **attrs)
        what = f"{op_type} '{outputs[0]}'"
        found = infer(proto, self.graph.tensors, list(inputs), self.graph.opsets, what)
        node = Node(outputs[0], op_type, list(inputs), outputs, attributes(proto, what), domain, (), proto)
        constants = folded(self.graph, node, found, what)
        for tensor in found.values() if constants is None else constants:
            self.graph.tensors[tensor.name] = tensor
        if constants is None:
            self.graph.nodes.append(node)
        return outputs

    def loops(self, scop: Scop, inputs: Sequence[str], shapes: Sequence[Sequence[int]]) -> list[str]:
        """A node of the loops of `scop`, whose results have these shapes; their names."""
        outputs = self._fresh(scop.name, len(scop.results))
        for name, array, shape in zip(outputs, scop.results, shapes, strict=True):
            self.graph.tensors[name] = Tensor(name, scop.arrays[array].dtype, tuple(shape))
        node = Node(outputs[0], LOOPS, list(inputs), outputs, {"scop": json_io.dumps(scop)}, DOMAIN)
        self.graph.nodes.append(node)
        return outputs

    def library(
        self, factory: Callable[..., Any], args: Sequence[Any], inputs: Sequence[str], shape: Sequence[int]
    ) -> str:
        """A node of the loops of a library operator `factory(*args)` with one result of `shape`."""
        return self.loops(_library_scop(factory, *args), inputs, [shape])[0]

    # ---- what gradients are made of ----------------------------------------------------------

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """The same elements in another shape."""
        return x if self.shape(x) == tuple(shape) else self.op("Reshape", x, self.integers(shape))

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """Dimensions in another order."""
        return x if list(perm) == sorted(perm) else self.op("Transpose", x, perm=list(perm))

    def expand(self, x: str, shape: Sequence[int]) -> str:
        """Broadcast to a shape."""
        return x if self.shape(x) == tuple(shape) else self.op("Expand", x, self.integers(shape))

    def sum(self, x: str, axes: Sequence[int], keepdims: bool = True) -> str:
        """The sum over axes."""
        return self.op("ReduceSum", x, self.integers(axes), keepdims=int(keepdims)) if axes else x

    def mean(self, x: str, axes: Sequence[int]) -> str:
        """The mean over axes, which stay with extent 1."""
        return self.op("ReduceMean", x, self.integers(axes), keepdims=1) if axes else x

    def sum_to(self, x: str, shape: Sequence[int]) -> str:
        """What the gradient `x` of a broadcast tensor is for the tensor of `shape` itself: summed over its copies."""
        own, shape = self.shape(x), tuple(shape)
        lead = len(own) - len(shape)
        axes = [*range(lead), *(lead + d for d, n in enumerate(shape) if n == 1 and own[lead + d] != 1)]
        return self.reshape(self.sum(x, axes), shape)

    def zeros(self, like: str) -> str:
        """Zeros of the type and shape of a tensor."""
        return self.zeros_of(self.graph.tensors[like])

    def zeros_of(self, tensor: Tensor) -> str:
        """Zeros of the type and shape of a tensor of any graph."""
        assert tensor.dtype is not None
        return self.constant(np.broadcast_to(np.zeros((), tensor.dtype.np), tensor.shape or ()))

    def copied(self, x: str) -> str:
        """The same elements under another name."""
        return self.op("Identity", x)

    def add(self, a: str, b: str) -> str:
        """`a + b`."""
        return self.op("Add", a, b)

    def sub(self, a: str, b: str) -> str:
        """`a - b`."""
        return self.op("Sub", a, b)

    def mul(self, a: str, b: str) -> str:
        """`a * b`."""
        return self.op("Mul", a, b)

    def div(self, a: str, b: str) -> str:
        """`a / b`."""
        return self.op("Div", a, b)

    def scale(self, a: str, factor: float) -> str:
        """`a` times a number."""
        return a if factor == 1 else self.mul(a, self.number(factor, a))

    def _fresh(self, what: str, count: int) -> list[str]:
        """Names that no tensor has yet."""
        stem = f"{self.stem}.{what.lower()}" if self.stem else what.lower()
        if count == 1:
            return [self.graph.fresh(stem)]
        return [self.graph.fresh(f"{stem}.{k}") for k in range(count)]


@lru_cache(maxsize=1024, typed=True)
def _library_scop(factory: Callable[..., Any], *args: Any) -> Scop:
    scop: Scop = factory(*args).scop()
    return scop
