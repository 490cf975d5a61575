"""The table of operations: how each is written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.stablehlo.sink import Val

if TYPE_CHECKING:
    from polyc.graph_driver.stablehlo.program import Operation

Rule = Callable[[Any, "Operation", list[Val]], Sequence[Val]]
RULES: dict[str, Rule] = {}
"""By the operation's name: `rule(writer, operation, operands)` gives the results."""


def operation(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated rule for operations."""

    def register(rule: Rule) -> Rule:
        RULES.update({name: rule for name in names})
        return rule

    return register


def integers(attributes: Mapping[str, Any], name: str, default: Sequence[int] = ()) -> list[int]:
    """A list of integers among attributes: a list, an array, or one number."""
    found = attributes.get(name)
    if found is None:
        return list(default)
    if isinstance(found, int):
        return [found]
    return [int(n) for n in (found.ravel() if hasattr(found, "ravel") else found)]
