"""Horizontal fusion: products of one operand become one, where the cost model says so, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from tiny_models import model_of

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.choosing import siblings
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes import manager
from polyc.graph_driver.running.model import Model

rng = np.random.default_rng()


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {n: (rng.standard_normal(s) / 4).astype(np.float32) for n, s in shapes.items()}


def attention_inputs(rows: int, columns: tuple[int, ...] = (32, 32, 32), keep: bool = False) -> onnx.ModelProto:
    """Queries, keys and values of `rows` tokens; what follows keeps them apart unless `keep` makes them outputs."""
    nodes, given, outputs = [], {}, {}
    for k, n in enumerate(columns):
        given |= weights(**{f"w{k}": (48, n), f"b{k}": (n,)})
        nodes += [
            helper.make_node("MatMul", ["x", f"w{k}"], [f"m{k}"], f"product{k}"),
            helper.make_node("Add", [f"b{k}", f"m{k}"], [f"y{k}" if keep else f"a{k}"], f"add{k}"),
        ]
        if not keep:
            nodes.append(helper.make_node("ReduceSum", [f"a{k}"], [f"y{k}"], keepdims=1))
        outputs[f"y{k}"] = None
    return model_of(nodes, {"x": [1, rows, 48]}, outputs, given)


def attention(rows: int, heads: int = 4, wide: int = 16) -> onnx.ModelProto:
    """Attention of `rows` tokens from its operand to its result."""
    n, nodes = heads * wide, []
    given = weights(**{f"w{k}": (48, n) for k in "qkv"}, **{f"b{k}": (n,) for k in "qkv"})
    given |= {"shape": np.array([1, rows, heads, wide], np.int64), "scale": np.array(0.25, np.float32)}
    for k in "qkv":
        nodes += [
            helper.make_node("MatMul", ["x", f"w{k}"], [f"m{k}"]),
            helper.make_node("Add", [f"m{k}", f"b{k}"], [f"a{k}"]),
            helper.make_node("Reshape", [f"a{k}", "shape"], [f"r{k}"]),
            helper.make_node("Transpose", [f"r{k}"], [f"t{k}"], perm=[0, 2, 3, 1] if k == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        helper.make_node("MatMul", ["tq", "tk"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "tv"], ["y"]),
    ]
    return model_of(nodes, {"x": [1, rows, 48]}, {"y": None}, given)


def block(opset: int = 17, concat: bool = False, batch: int = 1) -> onnx.ModelProto:
    """The head of an Inception block: 1x1 convolutions of one image, each with a ReLU, one without bias."""
    given = weights(w0=(64, 32, 1, 1), b0=(64,), w1=(64, 32, 1, 1), w2=(48, 32, 1, 1), b2=(48,))
    nodes = []
    for k in range(3):
        bias = [f"b{k}"] if f"b{k}" in given else []
        nodes.append(helper.make_node("Conv", ["x", f"w{k}", *bias], [f"c{k}"], f"conv{k}"))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"]))
    if concat:
        nodes += [
            helper.make_node("Concat", ["r0", "r1", "r2"], ["all"], axis=1),
            helper.make_node("GlobalAveragePool", ["all"], ["y"]),
        ]
        return model_of(nodes, {"x": [batch, 32, 14, 14]}, {"y": None}, given, opset)
    nodes += [helper.make_node("GlobalMaxPool", [f"r{k}"], [f"y{k}"]) for k in range(3)]
    return model_of(nodes, {"x": [batch, 32, 14, 14]}, {f"y{k}": None for k in range(3)}, given, opset)


def check(proto: onnx.ModelProto, **options: Any) -> Model:
    model = compile_model(proto, threads=1, **options)
    feeds = {"x": rng.standard_normal(model.inputs["x"][1]).astype(np.float32)}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    model.executor().arena[:] = 0xFF
    for found, expected in zip(model(feeds).values(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return model


def labels(model: Model) -> list[str]:
    return [s.label for s in model.plan.steps]


def decisions(proto: onnx.ModelProto) -> list[siblings.Decision]:
    graph = import_model(proto)
    manager.run(graph, manager.select(), platform_of("cpu").machine)
    return [d for d in graph.decisions if isinstance(d, siblings.Decision)]


def test_queries_keys_and_values_of_one_token_are_one_kernel() -> None:
    proto = attention_inputs(1)
    model = check(proto)
    assert labels(model) == ["MatMul+Add", "ReduceSum", "ReduceSum", "ReduceSum"]
    assert labels(check(proto, disable=["siblings"])).count("MatMul+Add") == 3
    (decision,) = decisions(proto)
    assert decision.joined and "3 products of 'x' as one" in decision.reason and "parts are views" in decision.reason
    assert any("joined" in d and "product0" in d for d in model.report().decisions)


@pytest.mark.parametrize("rows", [2, 5, 16, 37, 128])
def test_queries_keys_and_values_of_any_tokens_are_one_kernel(rows: int) -> None:
    """Who reads a part takes it out of the whole: no kernel cuts, and every bit is as before."""
    proto = attention(rows)
    model, apart = check(proto), check(proto, disable=["siblings"])
    products = [label for label in labels(model) if label == "MatMul+Add"]
    assert len(products) == 1 and labels(apart).count("MatMul+Add") == 3
    assert len(labels(model)) == len(labels(apart)) - 2 and not {"Slice", "Split"} & {*labels(model)}
    assert any("readers take their parts out" in d.reason for d in decisions(proto))
    x = rng.standard_normal((1, rows, 48)).astype(np.float32)
    np.testing.assert_array_equal(model({"x": x})["y"], apart({"x": x})["y"])


def test_parts_that_two_kernels_read_would_have_to_be_cut_apart() -> None:
    proto = attention_inputs(16)
    for k in range(3):
        proto.graph.node.append(helper.make_node("ReduceMax", [f"a{k}"], [f"z{k}"], keepdims=1))
        proto.graph.output.append(helper.make_empty_tensor_value_info(f"z{k}"))
    (decision,) = decisions(proto)
    assert not decision.joined and "for cutting the result apart" in decision.reason
    check(proto)


@pytest.mark.parametrize("opset", [9, 11, 17])
def test_branches_of_several_images(opset: int) -> None:
    proto = block(opset, concat=True, batch=3)
    model = check(proto)
    assert sum(label.startswith("Conv") for label in labels(model)) == 1
    assert labels(check(proto, disable=["siblings"])).count("Conv+Relu") == 3


def test_what_would_only_take_more_memory_stays_apart() -> None:
    """Each of three large results becomes three numbers: one after another they need a third of the memory."""
    proto = block(batch=3)
    (decision,) = decisions(proto)
    assert not decision.joined and "need not be in memory at once" in decision.reason
    assert check(proto).plan.peak < 2 * 3 * 64 * 14 * 14 * 4


@pytest.mark.parametrize("opset", [11, 17])
def test_branches_of_a_block(opset: int) -> None:
    proto = block(opset)
    assert labels(check(proto)) == ["Conv+Relu", *["GlobalMaxPool"] * 3]


def test_why_siblings_are_kept_apart() -> None:
    reasons = [d.reason for d in decisions(block(concat=True))]
    assert len(reasons) == 3 and all("made in its place of 'all'" in r for r in reasons)
    assert all("output of the model" in d.reason for d in decisions(attention_inputs(1, keep=True)))
    proto = attention_inputs(1)
    proto.graph.node.append(helper.make_node("Softsign", ["m1"], ["s"]))
    proto.graph.node.append(helper.make_node("Mul", ["s", "m1"], ["z"]))
    proto.graph.output.append(helper.make_empty_tensor_value_info("z"))
    found = {d.producer: d for d in decisions(proto)}
    assert set(found) == {"MatMul 'product0'"} and "MatMul 'product1'" not in found["MatMul 'product0'"].consumer
    graph = weights(w0=(64, 64, 3, 3), w1=(64, 64, 3, 3))
    nodes = [helper.make_node("Conv", ["x", f"w{k}"], [f"c{k}"], f"conv{k}", pads=[1] * 4) for k in range(2)]
    nodes += [helper.make_node("GlobalMaxPool", [f"c{k}"], [f"y{k}"]) for k in range(2)]
    both = decisions(model_of(nodes, {"x": [1, 64, 56, 56]}, {"y0": None, "y1": None}, graph))
    assert [d.reason for d in both] == ["Winograd's method is better for it"] * 2


def test_whatever_is_joined_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined by force: several rows, unequal columns, constants of all shapes beside the results, Gemm."""
    monkeypatch.setattr(siblings, "_cycles", lambda graph, node, target, sizes: 0.0 if node.op_type == "Split" else 1.0)
    monkeypatch.setattr(siblings, "_crowds", lambda graph, strands, consumers: False)
    assert labels(check(attention_inputs(5, (8, 24, 3)))) == ["MatMul+Add", *["Slice+ReduceSum"] * 3]
    with monkeypatch.context() as patched:
        patched.setattr(siblings, "_is_taken_in", lambda graph, name, consumers: False)
        assert "Split" in labels(check(attention_inputs(5, (8, 24, 3))))
    given = weights(w0=(8, 20), w1=(5, 20), c0=(8,), s0=(1, 8), s1=(3, 1), t=(1,))
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "c0"], ["g0"], transB=1, alpha=0.5),
        helper.make_node("Gemm", ["x", "w1"], ["g1"], transB=1, alpha=0.5),
    ]
    for k in range(2):
        nodes += [
            helper.make_node("Mul", [f"g{k}", f"s{k}"], [f"p{k}"]),
            helper.make_node("Tanh", [f"p{k}"], [f"h{k}"]),
            helper.make_node("Sub", [f"h{k}", f"g{k}"], [f"d{k}"]),
            helper.make_node("Add", [f"d{k}", "t"], [f"e{k}"]),
            helper.make_node("Transpose", [f"e{k}"], [f"y{k}"], perm=[1, 0]),
        ]
    model = check(model_of(nodes, {"x": [3, 20]}, {"y0": None, "y1": None}, given))
    assert sum("Gemm" in label for label in labels(model)) == 1 and "Gemm+Mul+Tanh+Sub+Add" in labels(model)


def free(proto: onnx.ModelProto, **axes: int) -> onnx.ModelProto:
    """The same model for all sizes of these axes of `x`."""
    for name, axis in axes.items():
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    for t in proto.graph.initializer:
        if t.name == "shape":
            value = numpy_helper.to_array(t).copy()
            value[1] = -1
            t.CopyFrom(numpy_helper.from_array(value, t.name))
    return proto


def of_all_sizes(proto: onnx.ModelProto, *shapes: tuple[int, ...]) -> list[str]:
    """What the kernels of the program for all sizes are, after a comparison at these; siblings apart give the same."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [d.dim_param for d in proto.graph.input[0].type.tensor_type.shape.dim if d.dim_param]
    model = compile_model(proto, threads=1, dims=dict.fromkeys(names, (1, None)))
    assert model.running.formulas is not None
    for shape in shapes:
        feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
        for found, expected in zip(model(feeds).values(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return labels(model)


def test_queries_keys_and_values_of_free_sizes_are_one_kernel() -> None:
    """Any number of tokens by one program: readers take their parts through the reshape that makes the heads."""
    kernels = of_all_sizes(free(attention(7), rows=1), (1, 1, 48), (1, 37, 48))
    assert kernels.count("MatMul+Add") == 1 and not {"Slice", "Split"} & {*kernels}


def test_branches_of_free_sizes() -> None:
    kernels = of_all_sizes(free(block(concat=True, batch=3), n=0, h=2, w=3), (1, 32, 14, 14), (3, 32, 9, 13))
    assert sum(label.startswith("Conv") for label in kernels) == 1
