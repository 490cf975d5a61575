"""Which nodes the host gives the same bits for on every machine, though NumPy computes them and not polyc.

Nodes that move or compare values, or compute in integers, have one answer. Of arithmetic, IEEE 754 gives one answer for
what rounds once: sums, differences, products, quotients and square roots of single elements. What NumPy adds up,
multiplies as matrices or takes from a library of functions (`exp`, `pow`, ...) depends on its version, on the vectors
of the machine and on the BLAS it was built with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx

from polyc.graph_driver.communication import operators as communication
from polyc.graph_driver.graph.ir import Node, Tensor
from polyc.graph_driver.graph.python_calls import python_call_of
from polyc.poly.errors import ModelError

MOVING = frozenset((
    "Cast", "CastLike", "Compress", "Concat", "ConcatFromSequence", "Constant", "ConstantOfShape", "DepthToSpace",
    "Expand", "EyeLike", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "NonZero", "OneHot", "Optional",
    "OptionalGetElement", "OptionalHasElement", "Pad", "Reshape", "ReverseSequence", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "Shape", "Size", "Slice", "SpaceToDepth",
    "Split", "SplitToSequence", "Squeeze", "TopK", "Transpose", "Trilu", "Tile", "Unique", "Unsqueeze", "Where",
    "StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "ai.onnx.ml::ArrayFeatureExtractor",
    "ai.onnx.ml::LabelEncoder", "ai.onnx.ml::ZipMap",
))  # fmt: skip
COMPARING = frozenset((
    "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Hardmax", "IsInf", "IsNaN", "Less", "LessOrEqual",
    "Sign", "ai.onnx.ml::Binarizer",
))  # fmt: skip
ROUNDING_ONCE = frozenset((
    "Abs", "Add", "BitCast", "Ceil", "DequantizeLinear", "Div", "Floor", "Mul", "Neg", "NonMaxSuppression",
    "QuantizeLinear", "Reciprocal", "Round", "Sqrt", "Sub",
))  # fmt: skip
"""One operation of IEEE 754 after another for each element, each of them rounded: nothing is left to choose."""
SCATTERING = frozenset(("ScatterElements", "ScatterND"))
"""Moves, unless they add up what falls on one element."""
FIXED = MOVING | COMPARING | ROUNDING_ONCE
CONTROL = frozenset(("If", "Loop", "Scan", "SequenceMap"))
"""As their bodies are."""
NAMED = 8  # of the nodes that an error is about


class NotReproducible(ModelError):
    """Nodes run on the host whose bits no order of polyc's fixes."""

    code = "P416"

    def __init__(self, nodes: Sequence[tuple[str, str, str]]) -> None:
        """`nodes`: operator, name and why it runs on the host."""
        each = [f"{label} '{name}' ({reason})" if reason else f"{label} '{name}'" for label, name, reason in nodes]
        more = f" and {len(each) - NAMED} more" if len(each) > NAMED else ""
        super().__init__(
            f"reproducible: the host rounds as its machine does in {', '.join(each[:NAMED])}{more}: these need kernels"
        )


def same_everywhere(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a node has the same bits on every machine that runs it on the host."""
    if python_call_of(node) is not None:
        return False
    if node.domain == communication.DOMAIN:
        return True  # which elements are added up, the number of ranks decides, not the machine
    if node.op_type in CONTROL and not node.domain:
        return node.proto is not None and all(_fixed(n) for n in _inside(node.proto))
    if _named(node.domain, node.op_type) in FIXED:
        return True
    if node.op_type in SCATTERING and not node.domain and node.attrs.get("reduction", "none") == "none":
        return True
    types = [tensors[t].dtype for t in (*node.reads(), *node.writes())]
    return all(t is not None and not t.is_float for t in types)


def _named(domain: str, op_type: str) -> str:
    return f"{domain}::{op_type}" if domain not in ("", "ai.onnx") else op_type


def _fixed(node: onnx.NodeProto) -> bool:
    """Whatever its types are."""
    return node.op_type in CONTROL or _named(node.domain, node.op_type) in FIXED


def _inside(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a node's bodies, and of the bodies of these."""
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield inner
            yield from _inside(inner)
