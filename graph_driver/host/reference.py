"""Running one node on the host with `onnx.reference`: constant folding and the fallback of execution."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from polyc.graph_driver.communication import operators as communication
from polyc.graph_driver.graph.ir import Node, Tensor
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.host.host_indices import check_indices
from polyc.graph_driver.inference.concrete import type_proto
from polyc.poly.errors import ModelError


class NoImplementation(ModelError):
    """A node that has no loops, and that onnx's reference does not know."""

    code = "P404"


class HostNode:
    """One node, ready to run. `inputs` are called by position, captured tensors by name."""

    def __init__(self, kind: str, name: str, model: onnx.ModelProto, quick: bool = False) -> None:
        """`quick`: by `polyc.graph_driver.host.vectorised` where it has the operator."""
        self.message: Mapping[str, Any] | None = None
        if model.graph.node[0].domain == communication.DOMAIN:
            self.kind, self.name, self.proto = kind, name, model
            self.message = {a.name: _attribute(a) for a in model.graph.node[0].attribute}
            return
        # A third of the import of onnx, which most models never need.
        from onnx.reference import ReferenceEvaluator

        from polyc.graph_driver.host.host_operators import replacements
        from polyc.graph_driver.host.vectorised import IMPLEMENTED

        self.kind, self.name, self.proto = kind, name, model
        self._inputs = [i.name for i in model.graph.input]
        try:
            opsets = {o.domain: o.version for o in model.opset_import}
            own = [*replacements(opsets), *(IMPLEMENTED if quick else ())]
            self._evaluator = ReferenceEvaluator(model, new_ops=own)
        except Exception as error:  # the evaluator raises whatever an operator's constructor raises
            raise NoImplementation(
                f"{kind} '{name}': no loops and no host implementation ({one_line(error)})"
            ) from error

    @staticmethod
    def of(node: Node, opsets: Mapping[str, int], tensors: Mapping[str, Tensor], quick: bool = False) -> HostNode:
        """The host version of a graph node. Raises `ModelError` when onnx has none."""
        return HostNode(node.kind, node.name, model_of(node, opsets, tensors), quick)

    def write(self, values: Sequence[Any], results: Sequence[np.ndarray]) -> None:
        """Of a node with a `message` to other ranks: run it on the arrays where they lie. Raises `RankError`."""
        from polyc.graph_driver.communication.running import run

        assert self.message is not None
        run(self.proto.graph.node[0].op_type, self.name, self.message, values, results)

    def __call__(self, values: Sequence[Any], captures: Mapping[str, Any]) -> list[Any]:
        """Results in output order (absent outputs are left out).

        `values` are the present (not absent) inputs in order, `captures` the tensors that
        subgraphs use.

        Raises:
            BoundsError: an index is outside of what it chooses from.
            ModelError: the operator fails.
        """
        if self.kind == "Optional" and values:
            return [values[0]]  # onnx.reference wraps the value in a list; elsewhere an optional is the bare value
        node = self.proto.graph.node[0]
        if not node.domain:
            attrs = {a.name: a.i for a in node.attribute if a.type == onnx.AttributeProto.INT}
            check_indices(node.op_type, self.name, attrs, values)
        given = [n for n in self._inputs if n not in captures]
        feeds = dict(zip(given, values, strict=True)) | dict(captures)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return list(self._evaluator.run(None, feeds))
        except Exception as error:  # an operator of the reference may raise anything
            raise ModelError(f"{self.kind} '{self.name}' failed on the host: {one_line(error)}") from error


def _attribute(a: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(a)
    return value.decode() if isinstance(value, bytes) else value


def model_of(node: Node, opsets: Mapping[str, int], tensors: Mapping[str, Tensor]) -> onnx.ModelProto:
    """A model of just this node: inputs `in0, in1, ...`, then its captures; outputs `out0, ...`.

    Inputs carry their types: operators that onnx defines as functions of other operators need them.
    """
    proto = onnx.NodeProto()
    if node.proto is not None:
        proto.CopyFrom(node.proto)
    else:
        attrs = {k: v for k, v in node.attrs.items() if v is not None}
        attrs = {k: onnx.numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
        proto.CopyFrom(helper.make_node(node.op_type, [], [], domain=node.domain, **attrs))
    del proto.input[:], proto.output[:]
    proto.input.extend(f"in{k}" if name else "" for k, name in enumerate(node.inputs))
    proto.output.extend(f"out{k}" if name else "" for k, name in enumerate(node.outputs))
    names = {f"in{k}": i for k, i in enumerate(node.inputs) if i} | {c: c for c in node.captures}
    inputs = [onnx.ValueInfoProto(name=new, type=type_proto(tensors[old])) for new, old in names.items()]
    outputs = [onnx.ValueInfoProto(name=o) for o in proto.output if o]
    graph = onnx.GraphProto(name="host", node=[proto], input=inputs, output=outputs)
    imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
    return helper.make_model(graph, opset_imports=imports)
