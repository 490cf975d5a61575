"""Registered operators of the language inside compiled graphs: nodes of their loops, which fusion joins with others."""

from __future__ import annotations

from typing import Any

from polyc.frontend_dsl import Operator
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import OperatorScop, array_shape
from polyc.graph_driver.torch_bridge.lowering import TABLE, Lowering, Value


def inline(name: str, op: Operator) -> None:
    """Have graphs take torch's operator `polyc::NAME` as the loops of `op`."""

    def lowered(b: Lowering, *args: Any) -> Value | list[Value]:
        parameters = op.signature.params
        operands = {p.name: x if isinstance(x, Value) else b.constant(x, p.dtype) for p, x in zip(parameters, args)}
        for p in parameters:
            if operands[p.name].dtype != p.dtype:
                raise Unsupported(f"{op.name} takes {p.name} as {p.dtype}, not {operands[p.name].dtype}")
        shapes = {p.name: operands[p.name].shape for p in parameters if p.shape is not None}
        if 0 in {n for shape in shapes.values() for n in shape}:
            raise Unsupported(f"{op.name} of a tensor without elements")
        scop = op.scop(**shapes)
        whole = OperatorScop(scop, (), (), False)
        made = [array_shape(whole, r) for r in scop.results]
        results = b.loops(scop, [operands[a] for a in scop.args], [shape or () for shape in made])
        return results[0] if len(results) == 1 else results

    TABLE[f"polyc.{name}.default"] = lowered
