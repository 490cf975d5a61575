"""What an operator builder gets and gives: the contract between the graph and the library.

A builder is a function `NodeContext -> OperatorScop`; it raises `Unsupported` with a reason
for a form of the operator that it cannot turn into loops, and the node then runs on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from poly.dtypes import DType
from poly.errors import PolycError
from poly.scop import Scop


class Unsupported(PolycError):
    """This form of the operator has no loops in the library; the text says why."""


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """One operand: all sizes are known; `const` is its value when known at compile time."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    const: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total


@dataclass(frozen=True)
class NodeContext:
    """One node: `opset` is the version of its domain's operator set that the model imports.

    `attrs` holds only attributes present in the node, as Python values (int, float, str,
    np.ndarray for tensors, lists). Absent optional inputs are None. All output shapes are
    known; trailing absent outputs are left out.
    """

    op_type: str
    domain: str
    opset: int
    attrs: Mapping[str, Any]
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]


@dataclass(frozen=True)
class OperatorScop:
    """The node as loops over concrete sizes.

    `inputs` wires node input positions to Scop argument names (an input whose constant is
    baked into the loops is left out); `outputs` names the Scop's results in node output
    order. `pointwise`: one statement nest over the output's shape whose instance reads only
    elements that may be produced just before (it can be joined to a producer).
    """

    scop: Scop
    inputs: tuple[tuple[int, str], ...]
    outputs: tuple[str, ...]
    pointwise: bool


Builder = Callable[[NodeContext], OperatorScop]
