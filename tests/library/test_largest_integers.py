"""Constants of u64 that i64 does not hold: in the language, on every back end, and as operands of nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import polyc
from polyc import DslError, dims, empty, i64, op, u64
from polyc.emit.compile import compile_kernel

N = dims("N")
LARGEST = 2**64 - 1
X = np.array([0, 1, 2**63, LARGEST], np.uint64)


@op
def turned(X: u64[N]) -> u64[N]:
    Y = empty(N, u64)
    for i in range(N):
        Y[i] = max(X[i] ^ 18446744073709551615, X[i] - 9223372036854775808)
    return Y


@op
def too_large(X: i64[N]) -> i64[N]:
    Y = empty(N, i64)
    for i in range(N):
        Y[i] = X[i] + 9223372036854775808
    return Y


@pytest.mark.parametrize("backend", ["llvm", "c", "interp"])
def test_in_the_language(backend: str) -> None:
    scop = turned.scop()
    with np.errstate(over="ignore"):
        wanted = turned.python(X)
    np.testing.assert_array_equal(compile_kernel(scop, scop.schedule().tree, backend=backend)(X), wanted)


def test_other_types_do_not_hold_them() -> None:
    with pytest.raises(DslError, match="the integer 9223372036854775808 does not fit i64"):
        too_large.scop()


@pytest.mark.parametrize("kind", ["Add", "BitwiseXor", "Max", "Div", "Less", "Clip", "Pad"])
def test_as_operands_of_nodes(kind: str) -> None:
    made = [helper.make_tensor("c", TensorProto.UINT64, [], [LARGEST])]
    made += [helper.make_tensor("p", TensorProto.INT64, [2], [1, 1])] if kind == "Pad" else []
    node = helper.make_node(kind, ["x", "p", "c"] if kind == "Pad" else ["x", "c"], ["y"])
    result = TensorProto.BOOL if kind == "Less" else TensorProto.UINT64
    ends = (
        [helper.make_tensor_value_info("x", TensorProto.UINT64, [4])],
        [helper.make_tensor_value_info("y", result, [6 if kind == "Pad" else 4])],
    )
    graph = helper.make_graph([node], "g", *ends, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    compiled = polyc.compile_model(model, threads=1)
    with np.errstate(over="ignore"):
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": X})
    np.testing.assert_array_equal(compiled({"x": X})["y"], wanted)
    assert not compiled.report().host
