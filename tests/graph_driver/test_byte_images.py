"""Images of codes with channels last: convolutions four channels at a time, and what stands between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from exact_integers import KINDS, convolved, saturated
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.emit import targets
from polyc.frontend_dsl.library.quantization import make_requantize_once
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.byte_images import use_byte_images
from polyc.poly.dtypes import i8, u8
from tests.parts import in_part

VNNI = targets.get("sapphire-rapids")


def codes(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    info = np.iinfo(KINDS[kind])
    return rng.integers(info.min, info.max + 1, shape).astype(KINDS[kind])


def model_of(
    nodes: list[onnx.NodeProto], x: np.ndarray, constants: dict[str, np.ndarray], outputs: dict[str, int]
) -> bytes:
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    results = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], results, stored)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def operators(model: bytes, target: Any = VNNI) -> list[str]:
    graph = import_model(onnx.load_from_string(model))
    use_byte_images(graph, target)
    return [n.op_type for n in graph.nodes]


# channels, filters, kernel, stride, pad, dilation
FORMS = [(3, 16, 3, 2, 1, 1), (8, 24, 1, 1, 0, 1), (5, 18, 3, 1, 2, 2), (16, 20, 1, 2, 0, 1), (12, 33, 5, 1, 2, 1)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_integer_convolutions_are_exact(kind: str, form: tuple[int, ...]) -> None:
    channels, filters, kernel, stride, pad, dilation = form
    rng = np.random.default_rng([*form, kind == "i8"])
    x, w = codes(rng, kind, 2, channels, 9, 11), codes(rng, "i8", filters, channels, kernel, kernel)
    zero = codes(rng, kind)
    attrs = {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2}
    node = helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"], **attrs)
    model = model_of([node], x, {"w": w, "zero": zero}, {"y": TensorProto.INT32})
    assert "ByteConv" in operators(model) and "ConvInteger" in operators(model, targets.get("aarch64"))
    got = polyc.compile_model(model, threads=1)({"x": x})["y"]
    assert np.array_equal(got, convolved(x.astype(int) - int(zero), w, stride, pad, dilation))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("result", KINDS)
@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_chains_of_quantised_convolutions(kind: str, result: str, target: str) -> None:
    """A dense, a depthwise and a dense convolution: codes between them, those that the definition says."""
    rng = np.random.default_rng([5, kind == "i8", result == "i8"])
    x = codes(rng, kind, 1, 6, 10, 12)
    weights = [codes(rng, "i8", *s) for s in ((18, 6, 3, 3), (18, 1, 3, 3), (7, 18, 1, 1))]
    zeros = [codes(rng, kind), *(codes(rng, result) for _ in range(3))]
    biases = [rng.integers(-4000, 4000, len(w)).astype(np.int32) for w in weights]
    steps = [(rng.random(len(w)) * 4e-3 + 1e-3).astype(np.float32) for w in weights]
    constants: dict[str, np.ndarray] = {"one": np.array(1, np.float32)}
    nodes, name, value = [], "x", x
    for k, (w, b, s) in enumerate(zip(weights, biases, steps, strict=True)):
        group, pad = 18 if k == 1 else 1, 1 if k < 2 else 0
        own = {f"w{k}": w, f"zw{k}": np.zeros(len(w), np.int8), f"s{k}": s, f"b{k}": b}
        constants |= own | {f"z{k}": zeros[k], f"z{k + 1}": zeros[k + 1]}
        operands = [name, "one", f"z{k}", f"w{k}", f"s{k}", f"zw{k}", "one", f"z{k + 1}", f"b{k}"]
        name = "y" if k == 2 else f"c{k}"
        nodes.append(helper.make_node("QLinearConv", operands, [name], group=group, pads=[pad] * 4))
        sums = convolved(value.astype(int) - int(zeros[k]), w, 1, pad, 1, group) + b.reshape(-1, 1, 1)
        value = saturated(sums * s.astype(np.float64).reshape(-1, 1, 1), int(zeros[k + 1]), result)
    model = model_of(nodes, x, constants, {"y": helper.np_dtype_to_tensor_dtype(value.dtype)})
    made = operators(model)
    assert made.count("ByteConv") == 2 and made.count("ByteDepthwise") == made.count("ChannelsFirst") == 1
    assert np.array_equal(polyc.compile_model(model, threads=1, target=target)({"x": x})["y"], value)


def quantised_network(kind: str, channels: int, seed: int) -> tuple[bytes, np.ndarray]:
    """Two convolutions, their sum, pools, a concatenation and a mean, in QuantizeLinear/DequantizeLinear form."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 3, 17, 18)).astype(np.float32)
    zero = np.array(-7 if kind == "i8" else 121, KINDS[kind])
    constants: dict[str, np.ndarray] = {"step": np.array(0.03125, np.float32), "zero": zero}
    nodes: list[onnx.NodeProto] = []

    def add(op_type: str, inputs: list[str], out: str, **attrs: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [out], **attrs))
        return out

    def through(name: str) -> str:
        """Quantised and dequantised."""
        code = add("QuantizeLinear", [name, "step", "zero"], f"{name}.q")
        return add("DequantizeLinear", [code, "step", "zero"], f"{name}.d")

    def conv(name: str, out: str, shape: tuple[int, ...], **attrs: Any) -> str:
        constants[f"{out}.w"] = codes(rng, "i8", *shape)
        constants[f"{out}.s"] = (rng.random(shape[0]) * 2e-3 + 1e-3).astype(np.float32)
        constants[f"{out}.b"] = rng.standard_normal(shape[0]).astype(np.float32)
        add("DequantizeLinear", [f"{out}.w", f"{out}.s"], f"{out}.wd", axis=0)
        return through(add("Conv", [name, f"{out}.wd", f"{out}.b"], out, **attrs))

    image = through("x")
    first = conv(image, "first", (channels, 3, 3, 3), strides=[2, 2], pads=[1] * 4)
    pooled = through(add("MaxPool", [first], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    second = conv(pooled, "second", (channels, channels, 1, 1))
    third = conv(second, "third", (channels, channels, 3, 3), pads=[1] * 4)
    total = through(add("Relu", [add("Add", [pooled, third], "sum")], "relu"))
    both = through(add("Concat", [total, second], "both", axis=1))
    add("GlobalAveragePool", [both], "mean")
    add("Flatten", ["mean"], "y")
    add("Sigmoid", [third], "z")
    return model_of(nodes, x, constants, {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT}), x


@pytest.mark.parametrize(
    ("kind", "channels"), in_part([("u8", 8), ("i8", 20), ("u8", 18)], lambda kind, channels: channels == 18)
)
def test_networks_between_convolutions(kind: str, channels: int) -> None:
    model, x = quantised_network(kind, channels, channels)
    made = operators(model)
    assert made.count("ByteConv") == 3 and "MaxPool" not in made and made.count("ChannelsLast") == 1
    want = polyc.compile_model(model, threads=1, exact=True)({"x": x})
    for threads in (1, 2):
        got = polyc.compile_model(model, threads=threads)({"x": x})
        for name, value in want.items():  # a code at a tie may be its neighbour
            near = np.abs(got[name] - value) <= 1e-5
            assert near.mean() > 0.97 and np.abs(got[name] - value).max() < 0.1, name


def test_what_is_left_alone() -> None:
    """Sums that could pass 32 bits, weights that are no signed bytes, groups, few uses of each code."""
    rng = np.random.default_rng(3)
    x = codes(rng, "u8", 1, 8, 5, 5)
    for w, shift, group in (
        (codes(rng, "u8", 24, 8, 1, 1), np.uint8(3), 1),
        (codes(rng, "i8", 24, 4, 1, 1), np.int8(0), 2),
        (codes(rng, "i8", 4, 8, 1, 1), np.int8(0), 1),
    ):
        node = helper.make_node("ConvInteger", ["x", "w", "", "zw"], ["y"], group=group)
        model = model_of([node], x, {"w": w, "zw": np.asarray(shift)}, {"y": TensorProto.INT32})
        assert operators(model) == ["ConvInteger"]
        got = polyc.compile_model(model, threads=1)({"x": x})["y"]
        assert np.array_equal(got, convolved(x, w.astype(int) - int(shift), 1, 0, 1, group))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_rounded_once(kind: str, late: bool) -> None:
    """Ties go to even, of the value or of the value and its zero point, whatever the factor."""
    rng = np.random.default_rng(1)
    near = np.arange(-700, 700)
    for factor in (0.5, 0.25, 1.0, np.float32(1 / 3), np.float32(0.0077), 2.0**-14):
        tie = np.clip(np.rint((near + 0.5) / factor), -(2**31), 2**31 - 1).astype(np.int64)
        x = np.concatenate([near, tie, tie[5:-5] - 1, rng.integers(-(2**31), 2**31, 500)]).astype(np.int32)
        for zero in (KINDS[kind](3), KINDS[kind](100)):
            kernel = make_requantize_once(u8 if kind == "u8" else i8, (1,), x.shape, late)
            got = kernel(x, np.array([factor], np.float32), np.array([zero]))
            exact = x.astype(np.longdouble) * np.longdouble(np.float32(factor))
            want = np.rint(exact) + int(zero) if late else np.rint(exact + int(zero))
            info = np.iinfo(KINDS[kind])
            assert np.array_equal(got, np.clip(want, info.min, info.max).astype(got.dtype)), (factor, zero)


def test_quantised_operators_of_onnxruntime() -> None:
    """They are what they stand for: dequantised, computed, quantised."""
    rng = np.random.default_rng(4)
    x, other = codes(rng, "u8", 1, 8, 6, 6), codes(rng, "u8", 1, 8, 6, 6)
    constants = {
        "other": other, "s": np.array(0.0437, np.float32), "z": np.array(120, np.uint8),
        "t": np.array(0.1, np.float32), "v": np.array(7, np.uint8), "w": codes(rng, "i8", 5, 8),
        "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8), "b": np.arange(5, dtype=np.int32),
    }  # fmt: skip
    own = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("QLinearAdd", ["x", "s", "z", "other", "s", "z", "t", "v"], ["sum"], **own),
        helper.make_node("QLinearMul", ["sum", "t", "v", "x", "s", "z", "t", "v"], ["product"], **own),
        helper.make_node("QLinearConcat", ["t", "v", "sum", "t", "v", "product", "t", "v"], ["both"], axis=1, **own),
        helper.make_node("QLinearSigmoid", ["both", "t", "v", "s", ""], ["squashed"], **own),
        helper.make_node("QLinearLeakyRelu", ["both", "t", "v", "s", "z"], ["leaky"], alpha=0.1, **own),
        helper.make_node("QLinearAveragePool", ["leaky", "s", "z", "s", "z"], ["pool"], kernel_shape=[2, 2], **own),
        helper.make_node("QLinearGlobalAveragePool", ["sum", "t", "v", "s", "z"], ["mean"], channels_last=0, **own),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("QGemm", ["flat", "s", "z", "w", "ws", "wz", "b", "t", "v"], ["y"], transB=1, **own),
    ]
    outputs = dict.fromkeys(("sum", "product", "both", "squashed", "leaky", "pool", "y"), TensorProto.UINT8)
    given = helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)
    results = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    stored = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [given], results, stored), opset_imports=imports, ir_version=8
    )
    got = polyc.compile_model(model, threads=1)({"x": x})

    def real(q: np.ndarray, s: float, z: int) -> np.ndarray:
        return (q.astype(int) - z) * np.float64(np.float32(s))

    def near(name: str, value: np.ndarray, s: float, z: int) -> None:
        steps = value / np.float64(np.float32(s))
        off = np.abs(got[name].astype(int) - saturated(steps, z, "u8").astype(int))
        clear = np.abs(steps - np.floor(steps) - 0.5) > 1e-3
        assert off.max() <= 1 and clear.mean() > 0.5 and not off[clear].any(), name

    near("sum", real(x, 0.0437, 120) + real(other, 0.0437, 120), 0.1, 7)
    near("product", real(got["sum"], 0.1, 7) * real(x, 0.0437, 120), 0.1, 7)
    assert np.array_equal(got["both"], np.concatenate([got["sum"], got["product"]], 1))
    both = real(got["both"], 0.1, 7)
    near("squashed", 1 / (1 + np.exp(-both)), 0.0437, 0)
    near("leaky", np.where(both < 0, 0.1 * both, both), 0.0437, 120)
    leaky = real(got["leaky"], 0.0437, 120)
    near("pool", sum(leaky[:, :, a : a + 5, b : b + 5] for a in (0, 1) for b in (0, 1)) / 4, 0.0437, 120)
    mean = saturated(real(got["sum"], 0.1, 7).mean((2, 3)) / np.float64(np.float32(0.0437)), 120, "u8")
    bias = constants["b"] * np.float64(np.float32(0.0437)) * np.float64(np.float32(0.01))
    near("y", real(mean, 0.0437, 120) @ (constants["w"].T * np.float64(np.float32(0.01))) + bias, 0.1, 7)
