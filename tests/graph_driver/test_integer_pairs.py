"""Products of 8-bit integers two at a time: the same bits as NumPy's, and convolutions of dequantised codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.emit import targets
from polyc.frontend_dsl.library.pairs import make_pair_matmul
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes import manager
from polyc.graph_driver.passes.integer_pairs import packed_weights, use_integer_pairs, use_quantised_convolutions
from polyc.graph_driver.worker.compile_operator import compile_operator

RNG = np.random.default_rng(8)
TYPES = {"u8": np.uint8, "i8": np.int8}


def codes(kind: str, *shape: int) -> np.ndarray:
    info = np.iinfo(TYPES[kind])
    return RNG.integers(info.min, info.max + 1, shape).astype(TYPES[kind])


def model_of(nodes: list[onnx.NodeProto], x: np.ndarray, constants: dict[str, np.ndarray], out: int) -> bytes:
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    result = helper.make_tensor_value_info("y", out, None)
    stored = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], [result], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return bytes(model.SerializeToString())


def operators(model: bytes, step: Any, target: Any = None) -> list[str]:
    """The operators after one pass, for a machine with vectors of 256 bits."""
    graph = import_model(onnx.load_from_string(model))
    step(graph, target or targets.get("x86-64-v3"))
    return [n.op_type for n in graph.nodes]


MATRICES = [("u8", "i8", (5, 32), 40), ("i8", "u8", (2, 3, 6), 17), ("u8", "u8", (1, 64), 33)]


@pytest.mark.parametrize(("left", "right", "shape", "columns"), MATRICES)
@pytest.mark.parametrize("zeros", ["none", "one", "columns"])
def test_matrix_products(left: str, right: str, shape: tuple[int, ...], columns: int, zeros: str) -> None:
    x, w = codes(left, *shape), codes(right, shape[-1], columns)
    za, zb = (codes(left), codes(right, columns) if zeros == "columns" else codes(right))
    constants = {"w": w} | ({} if zeros == "none" else {"za": za, "zb": zb})
    node = helper.make_node("MatMulInteger", ["x", *constants], ["y"])
    model = model_of([node], x, constants, TensorProto.INT32)
    assert operators(model, use_integer_pairs) == ["PackPairs", "PairMatMul"]
    want = x.astype(np.int64) - (0 if zeros == "none" else int(za))
    want = want @ (w.astype(np.int64) - (0 if zeros == "none" else zb.astype(np.int64)))
    got = polyc.compile_model(model, threads=1)({"x": x})["y"]
    assert got.dtype == np.int32 and np.array_equal(got, want)


def convolved(x: np.ndarray, w: np.ndarray, strides: int, pads: int, dilations: int) -> np.ndarray:
    """The convolution of integers, tap by tap."""
    x = np.pad(x, ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    k = w.shape[2]
    high, wide = ((n - dilations * (k - 1) - 1) // strides + 1 for n in x.shape[2:])
    out = np.zeros((x.shape[0], w.shape[0], high, wide), np.int64)
    for a in range(k):
        for b in range(k):
            rows = slice(a * dilations, a * dilations + strides * (high - 1) + 1, strides)
            columns = slice(b * dilations, b * dilations + strides * (wide - 1) + 1, strides)
            out += np.einsum("nchw,oc->nohw", x[:, :, rows, columns], w[:, :, a, b])
    return out


FORMS = [(1, 1, 0, 1), (3, 1, 1, 1), (3, 2, 1, 2), (1, 2, 0, 1)]


@pytest.mark.parametrize(("kernel", "strides", "pads", "dilations"), FORMS)
@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_convolutions(kernel: int, strides: int, pads: int, dilations: int, kind: str) -> None:
    x, w, zero = codes(kind, 2, 6, 9, 11), codes("i8", 20, 6, kernel, kernel), codes(kind)
    attrs = {"strides": [strides] * 2, "pads": [pads] * 4, "dilations": [dilations] * 2}
    node = helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"], **attrs)
    model = model_of([node], x, {"w": w, "zero": zero}, TensorProto.INT32)
    assert operators(model, use_integer_pairs) == ["PackPairs", "PairConv"]
    want = convolved(x.astype(np.int64) - int(zero), w.astype(np.int64), strides, pads, dilations)
    assert np.array_equal(polyc.compile_model(model, threads=1)({"x": x})["y"], want)


SCALES = {"xs": np.float32(0.02), "ys": np.float32(1.7)}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", ["u8", "i8"])
@pytest.mark.parametrize("operator", ["QLinearMatMul", "QLinearConv"])
def test_quantised_products(operator: str, kind: str, several: bool) -> None:
    """The codes of the same operator without pairs, whose requantisation is theirs."""
    convolution = operator == "QLinearConv"
    x = codes(kind, 2, 6, 9, 11) if convolution else codes(kind, 5, 32)
    w, filters = (codes("i8", 20, 6, 3, 3), 20) if convolution else (codes("i8", 32, 24), 24)
    values = {n: np.array(v) for n, v in SCALES.items()}
    values |= {"xz": codes(kind), "w": w, "wz": np.zeros(filters if several else (), np.int8), "yz": codes(kind)}
    values["ws"] = (RNG.random(filters if several else ()) * 0.01 + 0.02).astype(np.float32)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    if convolution:
        values["b"], names = RNG.integers(-9000, 9000, filters).astype(np.int32), [*names, "b"]
    attrs = {"pads": [1] * 4, "strides": [2, 1]} if convolution else {}
    node = helper.make_node(operator, names, ["y"], **attrs)
    model = model_of([node], x, values, helper.np_dtype_to_tensor_dtype(x.dtype))
    assert operators(model, use_integer_pairs) == ["PackPairs", operator.replace("QLinear", "Pair"), "Requantize"]
    want = polyc.compile_model(model, threads=1, disable=["integer-pairs"])({"x": x})["y"]
    got = polyc.compile_model(model, threads=1, exact=True)({"x": x})["y"]
    assert np.unique(want).size > 20 and np.array_equal(got, want)


def quantised_convolution(
    channels: int, filters: int, axis_scales: bool, after: tuple[onnx.NodeProto, ...] = ()
) -> tuple[bytes, np.ndarray, np.ndarray]:
    """A model of QuantizeLinear, DequantizeLinear, Conv with dequantised weights, `after`; an input; the exact result
    of the convolution."""
    x = RNG.standard_normal((1, channels, 7, 7)).astype(np.float32)
    w, step, zero = codes("i8", filters, channels, 1, 1), np.float32(0.02), np.uint8(119)
    scales = (RNG.random(filters if axis_scales else ()) * 0.01 + 0.001).astype(np.float32)
    bias = RNG.standard_normal(filters).astype(np.float32)
    constants = {"w": w, "step": np.array(step), "zero": np.array(zero), "scales": scales, "bias": bias}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "scales"], ["wd"], axis=0),
        helper.make_node("Conv", ["d", "wd", "bias"], ["c" if after else "y"]),
        *after,
    ]
    out = TensorProto.UINT8 if after and after[-1].op_type == "QuantizeLinear" else TensorProto.FLOAT
    q = np.clip(np.rint(x / step) + zero, 0, 255).astype(np.int64) - int(zero)
    sums = np.einsum("nchw,oc->nohw", q, w[:, :, 0, 0].astype(np.int64))
    factor = np.broadcast_to(float(step) * scales.astype(np.float64), (filters,)).reshape(-1, 1, 1)
    return model_of(nodes, x, constants, out), x, sums * factor + bias.reshape(-1, 1, 1)


@pytest.mark.parametrize("axis_scales", [False, True])
def test_dequantised_convolutions(axis_scales: bool) -> None:
    model, x, want = quantised_convolution(6, 24, axis_scales)
    made = ["QuantizeLinear", "DequantizeLinear", "PackPairs", "PairConv", "Cast", "Mul", "Add"]
    assert operators(model, use_quantised_convolutions) == made
    for exact in (False, True):
        got = polyc.compile_model(model, threads=1, exact=exact)({"x": x})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("axis_scales", [False, True])
def test_requantised_convolutions(axis_scales: bool) -> None:
    """The sums become codes at once; they are those of the exact result wherever that is not at a tie."""
    last = helper.make_node("QuantizeLinear", ["c", "step", "zero"], ["y"])
    model, x, exact = quantised_convolution(6, 24, axis_scales, (last,))
    made = ["QuantizeLinear", "DequantizeLinear", "PackPairs", "PairConv", "RequantizeSums"]
    assert operators(model, use_quantised_convolutions) == made
    got = polyc.compile_model(model, threads=1)({"x": x})["y"]
    steps = exact / np.float64(np.float32(0.02))
    clear = np.abs(steps - np.floor(steps) - 0.5) > 1e-3
    want = np.clip(np.rint(steps) + 119, 0, 255)
    assert clear.mean() > 0.9 and np.array_equal(got[clear], want[clear])
    assert np.abs(got.astype(int) - want).max() <= 1


def test_codes_are_stored_rather_than_what_they_stand_for() -> None:
    """Codes that one kernel widens again are stored as codes; what the model gives out is not cut off."""
    last = helper.make_node("QuantizeLinear", ["c", "step", "zero"], ["k"])
    wide = helper.make_node("DequantizeLinear", ["k", "step", "zero"], ["y"])
    rows = helper.make_node("Softmax", ["v"], ["y"], axis=-1)
    for after, stored in (((last, wide), []), ((last, _renamed(wide, "v"), rows), ["k"])):
        model, _, _ = quantised_convolution(6, 24, True, after)
        kernels = [s.label for s in polyc.compile_model(model, threads=1, disable=["byte-images"]).plan.steps]
        assert any(k.endswith("RequantizeSums" if stored else "DequantizeLinear") for k in kernels), kernels


def _renamed(node: onnx.NodeProto, output: str) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.output[0] = output
    return copy


def test_what_is_left_alone() -> None:
    odd, _, _ = quantised_convolution(5, 24, True)
    few, _, _ = quantised_convolution(6, 4, True)
    for model in (odd, few):
        assert "Conv" in operators(model, use_quantised_convolutions)
    model, _, _ = quantised_convolution(6, 24, True)
    plain = targets.get("aarch64")
    assert "Conv" in operators(model, use_quantised_convolutions, plain)
    assert "quantised-convolutions" not in [p.name for p in manager.select(exact=True)]


def test_sums_that_could_wrap_are_left_alone() -> None:
    assert packed_weights(np.full((1 << 16, 1), 255), 0) is None
    assert packed_weights(np.full((1 << 14, 1), 255), 0) is not None


@pytest.mark.parametrize(
    ("name", "instruction", "other"),
    [("x86-64-v3", "vpmaddwd", "vpdpwssd"), ("sapphire-rapids", "vpdpwssd", "vpmaddwd")],
)
def test_integer_products_use_the_instructions_of_the_target(name: str, instruction: str, other: str) -> None:
    """Two products and their sum are one instruction; with VNNI adding that to the reduction is, too."""
    target = targets.get(name)
    text = compile_operator(make_pair_matmul(32, 16, 64).scop(), target).source("asm")
    assert instruction in text and other not in text and "vpmull" not in text
