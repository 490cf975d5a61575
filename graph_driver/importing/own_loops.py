"""Nodes `polyc::Loops` in a file: loops as the text of their attribute `scop` (programs of ranks are such models)."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

from polyc.graph_driver.graph.ir import Node, Tensor
from polyc.graph_driver.operators.context import OperatorScop, array_shape
from polyc.graph_driver.operators.loops import DOMAIN, LOOPS, loops_of
from polyc.poly.errors import ModelError
from polyc.poly.verify import verify


def is_loops(proto: onnx.NodeProto) -> bool:
    """Whether a node of a file brings its loops."""
    return (proto.domain, proto.op_type) == (DOMAIN, LOOPS)


def loops_node(proto: onnx.NodeProto, tensors: Mapping[str, Tensor], label: str) -> tuple[Node, dict[str, Tensor]]:
    """The node and its results, which have the types and shapes of the loops' arrays.

    Raises:
        ModelError: the attribute is no Scop, or its arguments are others than the operands.
    """
    what = f"{LOOPS} '{label}'"
    texts = [helper.get_attribute_value(a) for a in proto.attribute if a.name == "scop"]
    if len(texts) != 1 or not isinstance(texts[0], bytes):
        raise ModelError(f"{what} needs its loops as the text of the attribute scop")
    text = texts[0].decode(errors="replace")
    try:
        scop = loops_of(text)
        verify(scop)
    except Exception as error:  # whatever reading a broken text raises
        raise ModelError(f"{what}: its attribute scop is no Scop ({type(error).__name__}: {error})") from None
    operator = OperatorScop(scop, (), (), False)
    shapes = {n: array_shape(operator, n) for n in (*scop.args, *scop.results)}
    if any(s is None for s in shapes.values()):
        raise ModelError(f"{what}: the sizes of its loops are not numbers")
    if len(proto.input) != len(scop.args) or len(proto.output) != len(scop.results) or not all(proto.output):
        raise ModelError(
            f"{what} has {len(proto.input)} operands and {len(proto.output)} results, its loops {len(scop.args)} and "
            f"{len(scop.results)}"
        )
    for name, array in zip(proto.input, scop.args, strict=True):
        found, wanted = tensors.get(name), Tensor(array, scop.arrays[array].dtype, shapes[array])
        if found is None or not found.static or found.dtype != wanted.dtype or found.size != wanted.size:
            raise ModelError(f"{what}: operand {found or 'that is absent'} does not fit to {wanted} of its loops")
    made = {o: Tensor(o, scop.arrays[r].dtype, shapes[r]) for o, r in zip(proto.output, scop.results, strict=True)}
    return Node(label, LOOPS, list(proto.input), list(proto.output), {"scop": text}, DOMAIN), made
