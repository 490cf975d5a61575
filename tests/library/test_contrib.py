"""Operators of com.microsoft against ONNX Runtime, whose operators they are."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_case import in_part

import polyc
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators import registry, supported
from polyc.graph_driver.operators.context import NodeContext, OperatorScop

onnxruntime = pytest.importorskip("onnxruntime")
rng = np.random.default_rng(11)


def f32(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def model_of(
    op: str, inputs: dict[str, np.ndarray | None], outputs: int, opset: int, weights: tuple[str, ...], attrs: Any
) -> onnx.ModelProto:
    """One node; inputs in `weights` are initializers, None is an absent input."""
    node = helper.make_node(
        op, [n if v is not None else "" for n, v in inputs.items()], [f"o{k}" for k in range(outputs)],
        domain="com.microsoft", **attrs,
    )  # fmt: skip
    given = {n: v for n, v in inputs.items() if v is not None}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in given.items()
        if n not in weights
    ]
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in node.output]
    constants = [onnx.numpy_helper.from_array(v, n) for n, v in given.items() if n in weights]
    graph = helper.make_graph([node], "g", infos, results, constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def check(
    op: str, inputs: dict[str, np.ndarray | None], outputs: int = 1, opset: int = 17, weights: tuple[str, ...] = (),
    skip: tuple[int, ...] = (), atol: float = 2e-5, **attrs: Any,
) -> None:  # fmt: skip
    """Compiled without a host operator, and equal to ONNX Runtime. Outputs in `skip` are absent."""
    model = model_of(op, inputs, outputs, opset, weights, attrs)
    for k in skip:
        model.graph.node[0].output[k] = ""
    kept = [o for k, o in enumerate(model.graph.output) if k not in skip]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    feeds = {n: v for n, v in inputs.items() if v is not None and n not in weights}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, feeds)
    compiled = polyc.compile_model(model, threads=1)
    assert not compiled.report().host
    got = compiled(feeds)
    for o, expected in zip(kept, want, strict=True):
        assert got[o.name].shape == expected.shape
        np.testing.assert_allclose(got[o.name], expected, rtol=2e-5, atol=atol)


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1)])
def test_fused_matmul(trans: tuple[int, int]) -> None:
    a = f32(2, 5, 3) if trans[0] else f32(2, 3, 5)
    b = f32(2, 4, 5) if trans[1] else f32(2, 5, 4)
    check("FusedMatMul", {"a": a, "b": b}, transA=trans[0], transB=trans[1], alpha=0.5 if trans[0] else 1.0)


@pytest.mark.parametrize("opset", [14, 17])
@pytest.mark.parametrize("bias", [False, True])
def test_skip_layer_normalization(opset: int, bias: bool) -> None:
    inputs = {
        "x": f32(2, 3, 8),
        "skip": f32(2, 3, 8),
        "gamma": f32(8),
        "beta": f32(8),
        "bias": f32(8) if bias else None,
    }
    check("SkipLayerNormalization", inputs, outputs=4, opset=opset, skip=(1, 2), epsilon=1e-5)


@pytest.mark.parametrize("opset", [14, 20])
@pytest.mark.parametrize("bias", [False, True])
def test_fast_gelu(opset: int, bias: bool) -> None:
    check("FastGelu", {"x": f32(3, 8), "bias": f32(8) if bias else None}, opset=opset)


LSTMS = list(product((1, 2), (False, True), (False, True)))


@pytest.mark.parametrize(("directions", "signed", "columns"), in_part(LSTMS, (2, False, False), (1, True, True)))
def test_dynamic_quantize_lstm(directions: int, signed: bool, columns: bool) -> None:
    steps, batch, inputs, hidden = 3, 1, 4, 32 if columns else 5  # even sizes are multiplied in pairs
    kind = np.int8 if signed else np.uint8
    # Sums of two products stay below 2**15: beyond it ONNX Runtime saturates on CPUs without VNNI.
    low, high = (-60, 60) if signed else (0, 255)
    scales = (directions, 4 * hidden) if columns else (directions,)

    def whole(*shape: int) -> np.ndarray:
        return rng.integers(low, high, shape).astype(kind)

    def scale() -> np.ndarray:
        return (rng.random(scales) * 0.01 + 0.001).astype(np.float32)

    # ONNX Runtime wants signed weights to have zero points of 0, and the same one for all columns.
    zero = np.zeros(scales, kind) if signed or columns else np.full(scales, 120, kind)
    names = ("w", "r", "b", "sw", "zw", "sr", "zr")
    given: dict[str, np.ndarray | None] = {
        "x": f32(steps, batch, inputs), "w": whole(directions, inputs, 4 * hidden),
        "r": whole(directions, hidden, 4 * hidden), "b": f32(directions, 8 * hidden), "len": None,
        "h": f32(directions, batch, hidden), "c": f32(directions, batch, hidden), "p": None,
        "sw": scale(), "zw": zero, "sr": scale(), "zr": zero,
    }  # fmt: skip
    direction = "bidirectional" if directions == 2 else "forward"
    check("DynamicQuantizeLSTM", given, 3, 17, names, hidden_size=hidden, direction=direction)


def test_an_unknown_operator_is_named() -> None:
    model = model_of("Nothing", {"x": f32(2)}, 1, 17, (), {})
    with pytest.raises(polyc.ModelError, match="unknown operator Nothing in domain 'com.microsoft'"):
        polyc.compile_model(model)


def test_a_builder_of_ones_own_takes_the_librarys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is registered first."""

    def mine(ctx: NodeContext) -> OperatorScop:
        raise Unsupported("asked")

    def librarys(ctx: NodeContext) -> OperatorScop:
        raise Unsupported("replaced")

    monkeypatch.setattr(registry, "_OTHERS", {})
    librarys.__module__ = registry.__name__
    for domain in ("", "ai.onnx"):
        registry.onnx_operator("Own", domain=domain)(mine)
        registry.onnx_operator("Own", domain=domain)(librarys)
        assert registry.registered("", "Own") is registry.registered("ai.onnx", "Own") is mine
    assert "Own" in supported()
    del registry._LIBRARY["", "Own"]
