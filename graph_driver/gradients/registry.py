"""Which function makes the gradient of which operator.

A rule is a function `(builder, node, gradients) -> gradients of its inputs`. Its gradients come by the node's outputs,
None for those that do not matter; its answer has a tensor for each input, None for one that does not matter. A form
of the operator that it has no formula for is None instead: its gradient is derived from its loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.graph.ir import Node

Gradients = Sequence[str | None]
Answer = Gradients | None
Rule = Callable[[Builder, Node, Gradients], Answer]
_RULES: dict[str, Rule] = {}

FLAT = frozenset((
    "Floor", "Ceil", "Round", "Sign", "Not", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater",
    "GreaterOrEqual", "IsNaN", "IsInf", "Shape", "Size", "ArgMax", "ArgMin", "NonZero", "OneHot", "ConstantOfShape",
    "EyeLike", "Range", "BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Hardmax",
    "RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform", "Bernoulli", "Multinomial",
))  # fmt: skip
"""Operators whose derivative is zero wherever it exists."""


def gradient(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the decorated rule for operators (of other domains as `domain::name`)."""

    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def rule_of(kind: str) -> Rule | None:
    """The rule of an operator, or None."""
    return _RULES.get(kind)


def kinds() -> tuple[str, ...]:
    """All operators with a rule, sorted."""
    return tuple(sorted(_RULES))
