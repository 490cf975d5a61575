"""Calls, branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.stablehlo.convert import Writer
from polyc.graph_driver.stablehlo.program import Operation
from polyc.graph_driver.stablehlo.registry import operation
from polyc.graph_driver.stablehlo.sink import Val
from polyc.poly.dtypes import bool_, i32, i64


@operation("call", "func.call")
def call(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """The function's body in place of the call."""
    return w.called(o, str(o.attributes["callee"]), operands)


@operation("stablehlo.optimization_barrier", "stablehlo.composite")
def barrier(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """The operands themselves; a composite is what its decomposition computes."""
    if o.name == "stablehlo.composite":
        return w.called(o, str(o.attributes.get("decomposition", "")), operands)
    return operands


def _info(v: Val) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(v.name, elem_type_of(v.dtype), v.shape)


def _subgraph(w: Writer, inputs: Sequence[Val], write: Callable[[], Sequence[Val]]) -> onnx.GraphProto:
    """What `write` writes, as a graph whose results have names of its own."""
    with w.sink.inside() as nodes:
        results = [w.sink.node("Identity", [v], (v.dtype, v.shape)) for v in write()]
    return helper.make_graph(nodes, w.sink.fresh(), [_info(v) for v in inputs], [_info(v) for v in results])


@operation("stablehlo.while")
def while_(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """ONNX's Loop without a number of rounds."""
    condition, body = o.regions
    s = w.sink
    (first,) = w.region(condition, operands)
    count, going = Val(s.fresh(), i64, ()), Val(s.fresh(), bool_, ())
    states = [Val(s.fresh(), v.dtype, v.shape) for v in operands]

    def write() -> list[Val]:
        after = w.region(body, states)
        return [*w.region(condition, after), *after]

    graph = _subgraph(w, [count, going, *states], write)
    return s.several("Loop", [None, first, *operands], [(v.dtype, v.shape) for v in operands], body=graph)


@operation("stablehlo.if")
def if_(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """One of two regions."""
    return _if(w, o, operands[0], *[lambda r=r: w.region(r, []) for r in o.regions])  # type: ignore[misc]


def _if(
    w: Writer, o: Operation, condition: Val, yes: Callable[[], Sequence[Val]], no: Callable[[], Sequence[Val]]
) -> list[Val]:
    branches = {"then_branch": _subgraph(w, [], yes), "else_branch": _subgraph(w, [], no)}
    return w.sink.several("If", [condition], w.types(o), **branches)


@operation("stablehlo.case")
def case(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """One of several regions; the last for an index outside."""
    (index,) = operands

    def from_(k: int) -> Sequence[Val]:
        if k == len(o.regions) - 1:
            return w.region(o.regions[k], [])
        number = w.sink.constant(np.asarray(k, np.int32), i32)
        chosen = w.sink.node("Equal", [index, number], (bool_, ()))
        return _if(w, o, chosen, lambda: w.region(o.regions[k], []), lambda: from_(k + 1))

    return from_(0)
