"""What a rule is told of a node, and the table of all rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.graph.size import Extent
from polyc.graph_driver.graph.symbols import Symbols
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass

Shape = tuple[Extent, ...]


class NoRule(PolycError):
    """The operator, or this form of it, has no rule for symbolic sizes; the text says what."""

    code = "P410"


@dataclass(frozen=True)
class Call:
    """One node: its operator, attributes, operands (None: absent) and how many outputs it has."""

    op_type: str
    opset: int
    attrs: Mapping[str, Any]
    inputs: Sequence[Tensor | None]
    outputs: int
    symbols: Symbols

    def shape(self, position: int = 0) -> Shape:
        """Shape of an operand. Raises `NoRule` when it is absent or unknown."""
        t = self.inputs[position] if position < len(self.inputs) else None
        if t is None or t.shape is None:
            raise NoRule(f"{self.op_type} whose operand {position} has an unknown shape")
        return t.shape

    def values(self, position: int) -> list[Extent] | None:
        """The elements of a small operand whose value is known as numbers or formulas; None when absent.

        Raises:
            NoRule: its elements are known at run time only.
        """
        t = self.inputs[position] if position < len(self.inputs) else None
        if t is None:
            return None
        known = known_values(t)
        if known is None:
            raise NoRule(f"{self.op_type} whose operand '{t.name}' is known at run time only")
        return list(known.reshape(-1))

    def axis(self, default: int, name: str = "axis", rank: int | None = None) -> int:
        """An axis attribute, counted from the front."""
        rank = len(self.shape()) if rank is None else rank
        return int(self.attrs.get(name, default)) % max(rank, 1)

    def given(self, name: str, position: int) -> list[int] | None:
        """A list that was an attribute once and is a constant operand now; None when absent."""
        if name in self.attrs:
            return [int(v) for v in self.attrs[name]]
        found = self.values(position)
        return None if found is None else [int(v) for v in found]


def known_values(t: Tensor) -> np.ndarray | None:
    """Elements as Python integers and formulas, None when only a run knows them."""
    if t.sizes is not None:
        return t.sizes
    if t.const is None or t.const.dtype.kind not in "iub":
        return None
    return t.const.astype(object)


Rule = Callable[[Call], list[Shape]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter the decorated function as the rule of these operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register
