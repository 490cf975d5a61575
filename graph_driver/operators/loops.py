"""`polyc::Loops`: a node that brings its own loops, as a Scop written down (gradients, operators of a program)."""

from __future__ import annotations

from functools import lru_cache

from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import onnx_operator
from polyc.poly import json_io
from polyc.poly.scop import Scop

DOMAIN = "polyc"
LOOPS = "Loops"


@lru_cache(maxsize=1024)
def loops_of(text: str) -> Scop:
    """The Scop that a node carries as the text of its attribute `scop`."""
    return json_io.loads(text)


@onnx_operator(LOOPS, domain=DOMAIN)
def loops(ctx: NodeContext) -> OperatorScop:
    """The node's inputs are the Scop's arguments in order, its outputs the Scop's results."""
    scop = loops_of(ctx.attrs["scop"])
    return OperatorScop(scop, tuple(enumerate(scop.args)), scop.results, False)
