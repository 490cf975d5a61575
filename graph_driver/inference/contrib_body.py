"""What definitions of contributed operators are written with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from polyc.graph_driver.graph.ir import Tensor


class Body:
    """A definition in the making: each call of `add` appends a node and names its result. `declared` are the shapes
    that the model gives its inputs and outputs."""

    def __init__(
        self, outputs: Sequence[str], opset: int, fresh: Callable[[str], str],
        declared: Mapping[str, Sequence[int | str]],
    ) -> None:  # fmt: skip
        self.graph, self.opset, self._fresh, self.declared = onnx.GraphProto(), opset, fresh, declared
        self.outputs = list(outputs)
        self._label, self._count = next(o for o in outputs if o), 0

    def name(self) -> str:
        """A new name."""
        self._count += 1
        return self._fresh(f"{self._count}@{self._label}")

    def add(self, op_type: str, *inputs: str, to: str = "", **attrs: Any) -> str:
        """One more node with one result, called `to` or something new."""
        result = to or self.name()
        self.graph.node.append(helper.make_node(op_type, inputs, [result], **attrs))
        return result

    def several(self, op_type: str, inputs: Sequence[str], count: int, **attrs: Any) -> list[str]:
        """One more node with `count` results."""
        results = [self.name() for _ in range(count)]
        self.graph.node.append(helper.make_node(op_type, inputs, results, **attrs))
        return results

    def integers(self, *values: int) -> str:
        """A constant list of integers."""
        return self.constant(np.array(values, np.int64))

    def constant(self, value: np.ndarray) -> str:
        """A constant."""
        name = self.name()
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name


Definition = Callable[[Body, onnx.NodeProto, Mapping[str, Any], Mapping[str, Tensor]], None]
