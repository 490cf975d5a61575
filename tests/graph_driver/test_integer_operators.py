"""Random operators over 8-bit codes beside exact arithmetic, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from exact_integers import MAKERS
from onnx import helper, numpy_helper

import polyc

TOGETHER = 20  # nodes of one model


def check(seed: int) -> None:
    """`TOGETHER` random nodes in one model."""
    rng = np.random.default_rng(seed)
    cases = [MAKERS[int(rng.integers(len(MAKERS)))](rng, k) for k in range(TOGETHER)]
    nodes = [n for case in cases for n in case[0]]
    given = {n: v for case in cases for n, v in case[1].items()}
    constants = {n: v for case in cases for n, v in case[2].items()}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given.items()
    ]
    results = [
        helper.make_tensor_value_info(f"y{k}", helper.np_dtype_to_tensor_dtype(case[3].dtype), case[3].shape)
        for k, case in enumerate(cases)
    ]
    stored = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    got = polyc.compile_model(model, threads=1)(given)
    for k, case in enumerate(cases):
        assert np.array_equal(got[f"y{k}"], case[3]), f"seed {seed}, node {k}: {case[0][0]}"


@pytest.mark.parametrize("seed", range(2))
def test_random_operators(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(50))
def test_ten_thousand_random_operators(block: int) -> None:
    for seed in range(1000 + 10 * block, 1010 + 10 * block):
        check(seed)
