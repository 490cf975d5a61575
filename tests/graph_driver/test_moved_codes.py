"""Codes that only pass through a pool or a move between dequantising and quantising stay codes, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import polyc
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.algebra import simplify

SAME, OTHER = (0.037, 3), (0.05, 3)


def model(kind: str, move: str, before: tuple[float, int], after: tuple[float, int]) -> onnx.ModelProto:
    """Codes `x` dequantised, moved to `z`, and quantised."""
    shape = {"MaxPool": "1,3,4,4", "Transpose": "8,3,1,8"}.get(move.split()[0], "1,3,8,8")
    return onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 21]>
    g ({kind}[1,3,8,8] x) => ({kind}[{shape}] y)
    <float s = {{{before[0]}}}, {kind} p = {{{before[1]}}}, float t = {{{after[0]}}}, {kind} q = {{{after[1]}}}>
    {{ a = DequantizeLinear(x, s, p)  b = {move}  y = QuantizeLinear(b, t, q) }}""")


POOL = "MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (a)"
TURN = "Transpose <perm = [3, 1, 0, 2]> (a)"


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("move", [POOL, TURN, "Identity(a)"])
@pytest.mark.parametrize("after", [SAME, OTHER])
def test_moved_codes(kind: str, move: str, after: tuple[float, int]) -> None:
    made: Any = model(kind, move, SAME, after)
    graph = import_model(made)
    assert simplify(graph)["moved codes"] == (after == SAME and "Identity" not in move)
    info = np.iinfo(kind)
    x = np.random.default_rng(1).integers(info.min, info.max + 1, (1, 3, 8, 8)).astype(kind)
    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_array_equal(polyc.compile_model(made)({"x": x})["y"], want)


def test_codes_that_do_not_come_back() -> None:
    """A scale so large that values are infinite, and zero points that differ."""
    for before, after in (((3e38, 0), (3e38, 0)), (SAME, (0.037, 4)), ((0.037, 3), (-0.037, 3))):
        graph = import_model(model("uint8", POOL, before, after))
        assert simplify(graph)["moved codes"] == 0
