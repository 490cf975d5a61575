"""Runs one ONNX node through its library Scop and through ONNX's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import polyc  # noqa: F401  (wires the packages)
from polyc.emit.compile import compile_kernel
from polyc.graph_driver.operators import NodeContext, OperatorScop, TensorInfo, lookup
from polyc.poly.dtypes import from_numpy
from polyc.poly.verify import verify

rng = np.random.default_rng(7)


def in_part(cases: list[Any], *kept: Any) -> list[Any]:
    """Parameters of a test of which only `kept` are run each time, the others among the long tests."""
    assert set(kept) <= set(cases)
    return [c if c in kept else pytest.param(*c, marks=pytest.mark.long) for c in cases]


def f32(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return (rng.random(shape) + 0.1).astype(np.float32)


def ints(low: int, high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
    return rng.integers(low, high, shape).astype(dtype)


def expected(op: str, inputs: list[Any], opset: int, outputs: int, attrs: dict[str, Any]) -> list[np.ndarray]:
    """What ONNX's reference computes."""
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    outs = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, outs, **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs)
        if n
    ]
    results = [helper.make_tensor_value_info(o, onnx.TensorProto.UNDEFINED, None) for o in outs]
    graph = helper.make_graph([node], "g", infos, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {n: x for n, x in zip(names, inputs) if n}
    return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, feeds)]


def built(
    op: str, inputs: list[Any], results: list[np.ndarray], opset: int, const: tuple[int, ...], attrs: dict[str, Any]
) -> OperatorScop:
    """The library's Scop; `const` lists the inputs whose value is known."""
    infos = tuple(
        None if x is None else TensorInfo(f"i{k}", from_numpy(x.dtype), x.shape, x if k in const else None)
        for k, x in enumerate(inputs)
    )
    outputs = tuple(TensorInfo(f"o{k}", from_numpy(y.dtype), y.shape) for k, y in enumerate(results))
    builder = lookup("", op)
    assert builder is not None, op
    return builder(NodeContext(op, "", opset, attrs, infos, outputs))


def run(made: OperatorScop, inputs: list[Any], results: list[np.ndarray], backend: str = "llvm") -> list[np.ndarray]:
    """Program order, compiled; arrays pass as the views that the Scop declares."""
    verify(made.scop)
    kernel = compile_kernel(made.scop, made.scop.tree, backend=backend)
    args: dict[str, np.ndarray] = {}
    for position, name in made.inputs:
        shape = tuple(int(e.value) for e in made.scop.arrays[name].shape)
        args[name] = np.ascontiguousarray(inputs[position]).reshape(shape)
    got = kernel(*[args[name] for name in made.scop.args])
    got = got if isinstance(got, tuple) else (got,)
    order = [made.scop.results.index(name) for name in made.outputs]
    return [np.asarray(got[k]).reshape(y.shape) for k, y in zip(order, results)]


def check(
    op: str, *inputs: Any, opset: int = 21, const: tuple[int, ...] = (), outputs: int = 1, rtol: float = 2e-5,
    atol: float = 2e-5, want: list[np.ndarray] | None = None, backend: str = "llvm", **attrs: Any,
) -> OperatorScop:  # fmt: skip
    """Compare the compiled Scop with the reference (or with `want`)."""
    given = list(inputs)
    results = expected(op, given, opset, outputs, attrs) if want is None else want
    made = built(op, given, results, opset, const, attrs)
    for y, ref in zip(run(made, given, results, backend), results):
        assert y.dtype == ref.dtype
        if ref.dtype.kind == "f":
            np.testing.assert_allclose(y, ref, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(y, ref)
    return made
