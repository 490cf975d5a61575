"""Sequences whose elements are known tensors of the graph: what reads them becomes ordinary nodes.

Exporters write a `Loop` that inserts a row per iteration and a `ConcatFromSequence` after it. Once the
loop is unrolled, each sequence is a list of names. The nodes that make sequences stay in the graph, for
readers that need a sequence; without such readers they are dead code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Known = Callable[[str], np.ndarray | None]
MAX_PIECES = 4096
"""Of one `SplitToSequence`; longer sequences are the host's."""


class Sequences:
    """The sequences known so far, by name. `known` gives the value of a constant (None: it is not one)."""

    def __init__(self, known: Known, fresh: Callable[[str], str], opset: int) -> None:
        self.elements: dict[str, tuple[str, ...]] = {}
        self._known, self._fresh, self._opset = known, fresh, opset

    def note(self, node: onnx.NodeProto) -> None:
        """Remember the sequence that `node` makes, if its elements are known."""
        made = self._made(node)
        if made is not None:
            self.elements[node.output[0]] = made

    def _made(self, node: onnx.NodeProto) -> tuple[str, ...] | None:
        if node.op_type == "SequenceEmpty":
            return ()
        if node.op_type == "SequenceConstruct":
            return tuple(node.input)
        before = self.elements.get(node.input[0]) if node.input else None
        if before is None:
            return None
        if node.op_type == "Identity":
            return before
        if node.op_type == "SequenceInsert":
            at = self._position(node, 2, len(before))
            return None if at is None else (*before[:at], node.input[1], *before[at:])
        if node.op_type == "SequenceErase":
            at = self._position(node, 1, len(before) - 1)
            return None if at is None else (*before[:at], *before[at + 1 :])
        return None

    def split(
        self, node: onnx.NodeProto, attrs: Mapping[str, Any], shape: tuple[Any, ...] | None
    ) -> onnx.GraphProto | None:
        """The pieces of a `SplitToSequence` of a tensor of this shape as tensors, which its sequence then consists of.

        None when it is another operator, or when a size along the axis, or a length of the pieces, is no number.
        """
        if node.op_type != "SplitToSequence" or not shape:
            return None
        axis = int(attrs.get("axis", 0))
        extent = shape[axis] if -len(shape) <= axis < len(shape) else None
        lengths = self._lengths(node, extent) if isinstance(extent, int) else None
        if not lengths or len(lengths) > MAX_PIECES or sum(lengths) != extent or min(lengths) < 0:
            return None
        (result,) = node.output
        part, names = onnx.GraphProto(), [self._fresh(f"{k}@{result}") for k in range(len(lengths))]
        if self._opset < 13:
            part.node.append(helper.make_node("Split", node.input[:1], names, axis=axis, split=lengths))
        else:
            sizes = self._fresh(f"lengths@{result}")
            part.initializer.append(numpy_helper.from_array(np.array(lengths, np.int64), sizes))
            part.node.append(helper.make_node("Split", [node.input[0], sizes], names, axis=axis))
        if not attrs.get("keepdims", 1) and len(node.input) < 2:
            whole, names = names, [self._fresh(f"{n}@row") for n in names]
            for piece, row in zip(whole, names, strict=True):
                self._squeezed(part, piece, row, axis)
        self.elements[result] = tuple(names)
        return part

    def _lengths(self, node: onnx.NodeProto, extent: int) -> list[int] | None:
        """How long the pieces are along the axis; None when a run decides."""
        if len(node.input) < 2 or not node.input[1]:
            return [1] * extent
        value = self._known(node.input[1])
        if value is None:
            return None
        if value.ndim:
            return [int(n) for n in value]
        each = int(value)
        return [min(each, extent - at) for at in range(0, extent, each)] if each > 0 else None

    def _squeezed(self, part: onnx.GraphProto, name: str, result: str, axis: int) -> None:
        if self._opset < 13:
            part.node.append(helper.make_node("Squeeze", [name], [result], axes=[axis]))
            return
        axes = self._fresh(f"axis@{result}")
        part.initializer.append(numpy_helper.from_array(np.array([axis], np.int64), axes))
        part.node.append(helper.make_node("Squeeze", [name, axes], [result]))

    def _position(self, node: onnx.NodeProto, operand: int, default: int) -> int | None:
        """Where in the sequence, from 0; `default` when the operand is absent; None when a run decides."""
        if operand >= len(node.input) or not node.input[operand]:
            return default
        value = self._known(node.input[operand])
        if value is None:
            return None
        length = len(self.elements[node.input[0]])
        at = int(value.reshape(()))
        inside = -length <= at <= length if node.op_type == "SequenceInsert" else -length <= at < length
        return (at + length if at < 0 else at) if inside else None

    def replacement(self, node: onnx.NodeProto, attrs: Mapping[str, Any]) -> onnx.GraphProto | None:
        """Nodes that do without the sequence that `node` reads; None when its elements are not known."""
        elements = self.elements.get(node.input[0]) if node.input else None
        if elements is None:
            return None
        part = onnx.GraphProto()
        (result,) = node.output
        if node.op_type == "SequenceLength":
            part.initializer.append(numpy_helper.from_array(np.array(len(elements), np.int64), result))
        elif node.op_type == "SequenceAt":
            at = self._position(node, 1, 0)
            if at is None:
                return None
            part.node.append(helper.make_node("Identity", [elements[at]], [result]))
        elif node.op_type == "ConcatFromSequence" and elements:
            axis, pieces = int(attrs["axis"]), list(elements)
            if attrs.get("new_axis", 0):
                pieces = [self._unsqueezed(part, e, axis, result) for e in elements]
            part.node.append(helper.make_node("Concat", pieces, [result], axis=axis))
        else:
            return None
        return part

    def _unsqueezed(self, part: onnx.GraphProto, name: str, axis: int, label: str) -> str:
        made = self._fresh(f"{name}@{label}")
        if self._opset < 13:
            part.node.append(helper.make_node("Unsqueeze", [name], [made], axes=[axis]))
            return made
        axes = self._fresh(f"axis@{made}")
        part.initializer.append(numpy_helper.from_array(np.array([axis], np.int64), axes))
        part.node.append(helper.make_node("Unsqueeze", [name, axes], [made]))
        return made
