"""`polyc.GraphBuilder`: a graph written down node by node, each checked where it is written."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.building.construction import OPSET, Value
from polyc.graph_driver.compiling.from_source import compile_built
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.importing.binding import TYPICAL, TYPICAL_BATCH
from polyc.graph_driver.options import options_of
from polyc.graph_driver.python_graphs import interpreting
from polyc.graph_driver.python_graphs.place import placed
from polyc.graph_driver.python_graphs.recording import Recording, element_type
from polyc.graph_driver.python_graphs.tensors import GraphTensor, unwrapped
from polyc.graph_driver.running.model import Model
from polyc.poly.dtypes import DType
from polyc.poly.errors import ArgumentError, ModelError

IR_VERSION = 10


class GraphBuilder:
    """A graph under construction.

    Tensors come from `input`, `constant` and `op`; they take Python's operators, NumPy's functions, and operators of
    the language (`@polyc.op`), too. Types, shapes and names are checked at each step: a refusal is a `ModelError` of
    one line with the place in the program. `compile` makes a model of it, `onnx` a file for `polyc.training` or other
    tools, `run` computes it node by node.
    """

    def __init__(self, name: str = "graph") -> None:
        self._symbols = Symbols()
        self._sizes: dict[str, Any] = {}
        self._recording = Recording(name, symbols=self._symbols)
        self._named: dict[str, GraphTensor] = {}

    @property
    def graph(self) -> Graph:
        """What has been built so far (to be looked at)."""
        return self._recording.graph

    def __str__(self) -> str:
        return str(self.graph)

    def __getitem__(self, name: str) -> GraphTensor:
        """A tensor by its name. Raises `ModelError`: there is none."""
        if name not in self._named:
            near = difflib.get_close_matches(str(name), self._named, 1)
            hint = f": did you mean '{near[0]}'?" if near else f"; it has {', '.join(self._named) or 'none'}"
            raise ModelError(placed(f"the graph has no tensor '{name}'{hint}"))
        return self._named[name]

    def _name(self, name: str) -> str:
        if not isinstance(name, str) or not name:
            raise ModelError(placed(f"{name!r} is no name"))
        if name in self._named or name in self.graph.tensors:
            raise ModelError(placed(f"the graph has a tensor '{name}' already"))
        return name

    # ---- tensors -----------------------------------------------------------------------------

    def input(self, name: str, dtype: DType, shape: Sequence[int | str]) -> GraphTensor:
        """An input.

        Args:
            name: of the input, for calls of the model.
            dtype: `polyc.f32` and the like.
            shape: extents; a text names a size that each call decides, the same one wherever it is named.
        """
        if not isinstance(dtype, DType):
            raise ModelError(placed(f"input '{name}': {dtype!r} is no element type, as polyc.f32 is"))
        if isinstance(shape, (int, str)):
            raise ModelError(placed(f"input '{name}': a shape is a list of extents, not {shape!r}"))
        extents = [self._extent(name, n) for n in shape]
        made = GraphTensor(self._recording, self._recording.input(self._name(name), dtype, extents))
        self._named[name] = made
        return made

    def _extent(self, name: str, extent: int | str) -> Any:
        if isinstance(extent, str) and extent.isidentifier():
            if extent not in self._sizes:
                typical = TYPICAL[len(self._sizes) - 1] if 0 < len(self._sizes) <= len(TYPICAL) else TYPICAL_BATCH
                self._sizes[extent] = self._symbols.new(extent, 1, None, typical)
            return self._sizes[extent]
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
            raise ModelError(placed(f"input '{name}': {extent!r} is no extent: a number, or the name of a size"))
        return extent

    def constant(self, value: Any, name: str | None = None) -> GraphTensor:
        """A weight, or another array that no call changes; its elements are copied."""
        array = np.array(value)
        dtype = element_type(array.dtype)
        if name is None:
            return GraphTensor(self._recording, self._recording.constant(array, dtype))
        made = GraphTensor(self._recording, self._recording.weight(self._name(name), array, dtype))
        self._named[name] = made
        return made

    def op(self, kind: str, *operands: Any, name: str | None = None, **attributes: Any) -> Any:
        """A node of an ONNX operator (opset 22); its result, or several in a tuple.

        Args:
            kind: the operator's name.
            operands: tensors, names of tensors, arrays, numbers (of the type of the first tensor), or None for one that
                is absent.
            name: of the first result.
            attributes: of the operator, by ONNX's names.
        """
        r = self._recording
        if name is not None:
            self._name(name)

        def record() -> list[Value]:
            given = [unwrapped(self[o] if isinstance(o, str) else o, r) for o in operands]
            like = next((o.dtype for o in given if isinstance(o, Value)), None)
            return r.onnx_operator(kind, [None if o is None else r.operand(o, like) for o in given], attributes)

        made = tuple(GraphTensor(r, v) for v in r.checked(kind, record))
        if name is not None:
            self._named[name] = made[0]
        return made[0] if len(made) == 1 else made

    def output(self, name: str, tensor: GraphTensor | str) -> None:
        """A result of the graph, by name."""
        found = self[tensor] if isinstance(tensor, str) else tensor
        if not isinstance(found, GraphTensor) or found.recording is not self._recording:
            raise ModelError(placed(f"output '{name}': {tensor!r:.80} is no tensor of this graph"))
        r, value = self._recording, found.value

        def record() -> None:
            r.visit(helper.make_node("Identity", [value.name], [self._name(name)], name=f"output {name}"))
            r.graph.outputs.append(name)

        r.checked("output", record)

    # ---- what becomes of it ------------------------------------------------------------------

    def _complete(self) -> Graph:
        if not self.graph.outputs:
            raise ModelError(placed(f"the graph {self.graph.name} has no outputs"))
        made = interpreting.copied(self.graph)
        if not self._sizes:
            made.symbols = None
        return made

    def compile(self, *, target: str = "cpu", **options: Any) -> Model:
        """The graph as a compiled model; options are those of `polyc.compile_model`.

        Raises:
            ModelError: there are no outputs, or a node cannot run.
            ArgumentError: there is no such option.
        """
        chosen = options_of("compile", target, options)
        platform = platform_of(chosen.target, chosen.threads)
        chosen.pipeline(platform)
        chosen.refuse_ignored(platform, symbolic=bool(self._sizes))
        return compile_built(self._complete(), platform, chosen)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs for these inputs, node by node: slow, and what kernels must be equal to.

        Raises:
            ModelError: sizes are symbolic, or a node fails.
            ArgumentError: an input is missing, or is another array.
        """
        graph = self._complete()
        if graph.symbols is not None:
            raise ModelError(placed(f"run needs sizes that are numbers, but {next(iter(self._sizes))} is symbolic"))
        for name in graph.inputs:
            tensor, array = graph.tensors[name], feeds.get(name)
            if array is None or np.shape(array) != tensor.shape or np.asarray(array).dtype != tensor.dtype:
                raise ArgumentError(f"input '{name}' must be {tensor}")
        return interpreting.run(graph, {n: np.asarray(feeds[n]) for n in graph.inputs})

    def onnx(self) -> onnx.ModelProto:
        """The graph as an ONNX model.

        Raises:
            ModelError: it has operators of the language, or sizes computed from others, which ONNX has not.
        """
        r, graph = self._recording, self._complete()
        if r.own:
            raise ModelError(placed(f"ONNX has no operator {r.own[0]}: compile the graph instead"))
        made = {o for p in r.protos for o in p.output}
        read = dict.fromkeys(i for p in r.protos for i in p.input if i)
        initializers = []
        for name in read:
            if name in made or name in graph.inputs:
                continue
            value = graph.constant(name)
            if value is None:
                raise ModelError(placed("a shape that is computed from symbolic sizes is no constant of ONNX: take -1"))
            initializers.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        inputs, outputs = ([_info(graph, n) for n in names] for names in (graph.inputs, graph.outputs))
        proto = helper.make_graph(r.protos, graph.name, inputs, outputs, initializers)
        return helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _info(graph: Graph, name: str) -> onnx.ValueInfoProto:
    tensor = graph.tensors[name]
    assert tensor.dtype is not None
    shape = [n if isinstance(n, int) else str(n) for n in tensor.shape or ()]
    return helper.make_tensor_value_info(name, elem_type_of(tensor.dtype), shape)
