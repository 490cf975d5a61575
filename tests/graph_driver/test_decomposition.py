"""Operators against their parts: compiled as one node and as the nodes of their definition, the results agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest
from compared import checked, feeds_of, node
from onnx import helper
from tiny_models import model_of

rng = np.random.default_rng(7)


def defined(op_type: str, opset: int, shapes: dict[str, list[int]], **attrs: Any) -> tuple[onnx.ModelProto, ...]:
    """An operator of ONNX, and the function that ONNX itself defines it by (an independent judge of the parts)."""
    direct = model_of([node(op_type, [*shapes], "y", **attrs)], shapes, {"y": None}, {}, opset=opset)
    local = onnx.FunctionProto()
    local.CopyFrom(parts_of(op_type, opset, direct, attrs))
    local.name, local.domain = "parts", "definition"
    split = onnx.ModelProto()
    split.CopyFrom(direct)
    del split.graph.node[:]
    split.graph.node.append(helper.make_node("parts", [*shapes], ["y"], "y", domain="definition", **attrs))
    split.functions.append(local)
    split.opset_import.append(helper.make_opsetid("definition", 1))
    return direct, onnx.inliner.inline_local_functions(split)


def parts_of(op_type: str, opset: int, model: onnx.ModelProto, attrs: dict[str, Any]) -> onnx.FunctionProto:
    schema = onnx.defs.get_schema(op_type, opset)
    if not schema.has_context_dependent_function:
        assert schema.has_function
        return schema.get_function_with_opset_version(schema.function_opset_versions[-1])  # type: ignore[no-any-return]
    types = [i.type.SerializeToString() for i in model.graph.input]
    version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
    text = schema.get_context_dependent_function_with_opset_version(version, model.graph.node[0].SerializeToString(),
                                                                    types)  # fmt: skip
    return onnx.FunctionProto.FromString(text)


def gemm() -> tuple[onnx.ModelProto, ...]:
    shapes = {"a": [19, 33], "b": [24, 19], "c": [24]}
    direct = [node("Gemm", ["a", "b", "c"], "y", alpha=0.5, beta=2.0, transA=1, transB=1)]
    parts = [
        node("Transpose", ["a"], "at", perm=[1, 0]), node("Transpose", ["b"], "bt", perm=[1, 0]),
        node("MatMul", ["at", "bt"], "p"), node("Mul", ["p", "alpha"], "ap"), node("Mul", ["c", "beta"], "bc"),
        node("Add", ["ap", "bc"], "y"),
    ]  # fmt: skip
    values = {"alpha": np.float32(0.5), "beta": np.float32(2)}
    return tuple(model_of(n, shapes, {"y": None}, values) for n in (direct, parts))


def lrn() -> tuple[onnx.ModelProto, ...]:
    """Local response normalisation: x / (bias + alpha / 5 * the sum of squares of 5 channels around it) ** beta."""
    direct = [node("LRN", ["x"], "y", size=5, alpha=0.3, beta=0.75, bias=1.5)]
    parts = [
        node("Mul", ["x", "x"], "q"), node("Reshape", ["q", "flat"], "f"),
        node("AveragePool", ["f"], "m", kernel_shape=[5, 1], pads=[2, 0, 2, 0], count_include_pad=1),
        node("Reshape", ["m", "deep"], "d"), node("Mul", ["d", "alpha"], "s"), node("Add", ["s", "bias"], "t"),
        node("Pow", ["t", "beta"], "u"), node("Div", ["x", "u"], "y"),
    ]  # fmt: skip
    values = {
        "flat": np.array([2, 1, 13, 63]), "deep": np.array([2, 13, 7, 9]), "alpha": np.float32(0.3),
        "bias": np.float32(1.5), "beta": np.float32(0.75),
    }  # fmt: skip
    return tuple(model_of(n, {"x": [2, 13, 7, 9]}, {"y": None}, values) for n in (direct, parts))


@pytest.mark.parametrize("models", [
    defined("Softmax", 18, {"x": [9, 40]}, axis=-1),
    defined("LayerNormalization", 18, {"x": [9, 40], "w": [40], "b": [40]}, axis=-1),
    defined("Gelu", 20, {"x": [9, 40]}),
    defined("Gelu", 20, {"x": [9, 40]}, approximate="tanh"),
    gemm(), lrn(),
], ids=["softmax", "layer norm", "gelu", "gelu by tanh", "gemm", "lrn"])  # fmt: skip
def test_an_operator_and_its_parts_agree(models: tuple[onnx.ModelProto, onnx.ModelProto]) -> None:
    direct, parts = (checked(m) for m in models)  # each with ONNX Runtime, too
    feeds = feeds_of(direct)
    np.testing.assert_allclose(direct(feeds)["y"], parts(feeds)["y"], rtol=2e-5, atol=2e-6)
    assert not direct.report().host and not parts.report().host
