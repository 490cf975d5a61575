"""Operators made of several smaller Scops: one after another, or side by side."""

from __future__ import annotations

from collections.abc import Sequence

from graph_driver.operators.context import OperatorScop
from poly.rewriting.compose import compose
from poly.scop import Scop

Wiring = tuple[Scop, dict[str, str]]


def joined(name: str, parts: Sequence[Wiring], inputs: Sequence[str], outputs: Sequence[str]) -> OperatorScop:
    """`parts` run in order; `inputs` are the node's inputs by position, `outputs` its outputs."""
    scop = compose(name, parts, inputs, outputs)
    return OperatorScop(scop, tuple(enumerate(inputs)), tuple(outputs), False)


def extents(scop: Scop, array: str) -> tuple[int, ...]:
    """The shape of one of the Scop's arrays; its sizes are concrete."""
    return tuple(int(e.value) for e in scop.arrays[array].shape)  # type: ignore[attr-defined]
