"""What an operator builder gets and gives: the contract between the graph and the library.

A builder is a function `NodeContext -> OperatorScop`; it raises `Unsupported` with a reason
for a form of the operator that it cannot turn into loops, and the node then runs on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from polyc.graph_driver.graph.size import Home, Size, size_of
from polyc.poly.dtypes import DType
from polyc.poly.expr import Const
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """One operand; `const` is its value when known at compile time, `sizes` when it follows from symbolic sizes.

    Extents are numbers or formulas (`polyc.graph_driver.graph.size.Size`), with which a builder computes alike;
    where only a number will do, the formula raises and the node is refused.
    """

    name: str
    dtype: DType
    shape: tuple[Any, ...]
    const: np.ndarray | None = None
    sizes: np.ndarray | None = None

    @property
    def size(self) -> Any:
        """Number of elements."""
        return prod(self.shape)


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

    @property
    def symbols(self) -> Home | None:
        """What the formulas in the shapes are made of; None when all are numbers."""
        extents = (n for t in (*self.inputs, *self.outputs) if t is not None for n in t.shape)
        return next((n.home for n in extents if isinstance(n, Size)), None)


@dataclass(frozen=True)
class RowBlocks:
    """A convolution of images in blocks of rows: its form with `of(n)` rows of the result in a block, and how many
    rows of each channel it `copies` then, as each block has padded rows of its own (None: it reads its image as it is).
    """

    of: Callable[[int], OperatorScop]
    copies: Callable[[int], int] | None = None


@dataclass(frozen=True)
class OperatorScop:
    """The node as loops over concrete sizes.

    `inputs` wires node input positions to Scop argument names (an input whose constant is
    baked into the loops is left out); `outputs` names the Scop's results in node output
    order. `pointwise`: one statement nest over the output's shape whose instance reads only
    elements that may be produced just before (it can be joined to a producer). `symbols`: what the
    Scop's parameters stand for, None without parameters. `over`: the Scop with all of its arrays as tensors of this
    shape, a loop for each dimension; None where the operator has no such form, or not of this shape. `in_rows`: the
    operator with its images stored as blocks of rows.
    """

    scop: Scop
    inputs: tuple[tuple[int, str], ...]
    outputs: tuple[str, ...]
    pointwise: bool
    symbols: Home | None = None
    over: Callable[[tuple[Any, ...]], Scop | None] | None = field(default=None, compare=False)
    in_rows: RowBlocks | None = field(default=None, compare=False)


Builder = Callable[[NodeContext], OperatorScop]


def array_shape(operator: OperatorScop, name: str) -> tuple[Any, ...] | None:
    """The shape of one of the Scop's arrays as numbers and formulas; None for symbols that stand for nothing."""
    shape = operator.scop.arrays[name].shape
    if operator.symbols is not None:
        return tuple(size_of(operator.symbols, e) for e in shape)
    return (
        tuple(int(e.value) for e in shape if isinstance(e, Const)) if all(isinstance(e, Const) for e in shape) else None
    )
