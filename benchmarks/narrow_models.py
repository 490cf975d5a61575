"""8-bit networks for `benchmarks.narrow`: networks of onnx and torch, made narrow by ONNX Runtime's tools.

Weights are random (seeded): the light models of the onnx package have none. Times do not depend on them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

SAMPLES = 2  # for calibration


def light(name: str) -> onnx.ModelProto:
    """A light model of the onnx package, with random weights where it has a formula for constants."""
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    model = onnx.load(path)
    rng, sizes = np.random.default_rng(0), {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in sizes:
            kept.append(node)
            continue
        shape = tuple(int(n) for n in sizes[node.input[0]])
        model.graph.initializer.append(numpy_helper.from_array(_weights(rng, shape), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    constants = {t.name for t in model.graph.initializer}
    given = [i for i in model.graph.input if i.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(given)
    model.ir_version = 8
    return model


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Of a size that neither grows nor fades through the layers; vectors (variances, too) are near 1."""
    if len(shape) < 2:
        return (1 + 0.1 * rng.random(shape)).astype(np.float32)
    return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


def modern(model: onnx.ModelProto) -> onnx.ModelProto:
    """In an opset that has quantisation for each channel; sums of two are `Add`, which ONNX Runtime's tools know."""
    for node in model.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    return onnx.version_converter.convert_version(model, 17)


class _Random:
    """Calibration data: standard normal, as many samples as `SAMPLES`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        rng, constants = np.random.default_rng(1), {t.name for t in model.graph.initializer}
        given = [i for i in model.graph.input if i.name not in constants]
        shapes = {i.name: [d.dim_value or 1 for d in i.type.tensor_type.shape.dim] for i in given}
        self.left: Iterator[dict[str, Any]] = iter(
            {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()} for _ in range(SAMPLES)
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self.left, None)


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """With normalisation in the weights before it, as ONNX Runtime folds it."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def statically(model: onnx.ModelProto, operators: bool = False) -> onnx.ModelProto:
    """QDQ (or, with `operators`, QLinear operators): u8 images, i8 weights for each channel."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    model = folded(model)
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(model, before)
        quantize_static(
            before, after, _Random(model), per_channel=True, activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8, quant_format=QuantFormat.QOperator if operators else QuantFormat.QDQ,
        )  # fmt: skip
        return onnx.load(after)


def dynamically(model: onnx.ModelProto) -> onnx.ModelProto:
    """DynamicQuantizeLinear and MatMulInteger, ConvInteger."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(model, before)
        quantize_dynamic(before, after, weight_type=QuantType.QInt8)
        return onnx.load(after)


def encoder(hidden: int, layers: int, heads: int, inner: int, length: int) -> onnx.ModelProto:
    """A transformer encoder over embedded tokens `x`: attention, Gelu (by `Erf`), layer norms after."""
    rng, nodes, constants = np.random.default_rng(0), [], {}

    def add(op_type: str, inputs: list[str], out: str, **attrs: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [out], **attrs))
        return out

    def constant(name: str, value: np.ndarray) -> str:
        constants[name] = value
        return name

    def linear(x: str, name: str, rows: int, columns: int) -> str:
        weights = (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        bias = (0.1 * rng.standard_normal(columns)).astype(np.float32)
        product = add("MatMul", [x, constant(f"{name}.w", weights)], f"{name}.product")
        return add("Add", [product, constant(f"{name}.b", bias)], name)

    def norm(x: str, name: str) -> str:
        one, none = np.ones(hidden, np.float32), np.zeros(hidden, np.float32)
        operands = [x, constant(f"{name}.g", one), constant(f"{name}.z", none)]
        return add("LayerNormalization", operands, name, axis=-1)

    shape = constant("heads", np.array([0, 0, heads, hidden // heads]))
    flat = constant("flat", np.array([0, 0, hidden]))
    width, half = constant("width", np.float32(np.sqrt(hidden // heads))), constant("half", np.float32(0.5))
    root, one = constant("root", np.float32(np.sqrt(2))), constant("one", np.float32(1))
    x = "x"
    for k in range(layers):
        turned = {}
        for what, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            split = add("Reshape", [linear(x, f"{what}{k}", hidden, hidden), shape], f"{what}{k}.split")
            turned[what] = add("Transpose", [split], f"{what}{k}.turned", perm=perm)
        scores = add("MatMul", [turned["q"], turned["k"]], f"scores{k}")
        weights = add("Softmax", [add("Div", [scores, width], f"scaled{k}")], f"weights{k}", axis=-1)
        mixed = add("Transpose", [add("MatMul", [weights, turned["v"]], f"mixed{k}")], f"back{k}", perm=[0, 2, 1, 3])
        joined = linear(add("Reshape", [mixed, flat], f"joined{k}"), f"o{k}", hidden, hidden)
        x = norm(add("Add", [x, joined], f"after{k}"), f"norm{k}")
        wide = linear(x, f"up{k}", hidden, inner)
        bent = add("Add", [add("Erf", [add("Div", [wide, root], f"e{k}")], f"f{k}"), one], f"g{k}")
        gelu = add("Mul", [add("Mul", [wide, bent], f"h{k}"), half], f"gelu{k}")
        x = norm(add("Add", [x, linear(gelu, f"down{k}", inner, hidden)], f"more{k}"), f"out{k}")
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, length, hidden])
    result = helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "encoder", [given], [result], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


INT8 = "int8"
"""The form of f32 that polyc compiles with `--precision int8`; ONNX Runtime runs it in f32."""

FORMS = {
    "resnet50": ("f32", "qdq", "operators"),
    "squeezenet": ("f32", "qdq", "operators"),
    "encoder": ("f32", "qdq", "dynamic", INT8),
}
"""Networks, and the forms in which they are timed; `encoder` has the sizes of MiniLM (6 layers of 384), 128 tokens."""
ENCODER = (384, 6, 12, 1536, 128)


def network(name: str, form: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A network of `FORMS` in one of its forms, and a random input."""
    model = encoder(*ENCODER) if name == "encoder" else folded(modern(light(name)))
    if form == "dynamic":
        model = dynamically(model)
    elif form not in ("f32", INT8):
        model = statically(model, form == "operators")
    stored = {t.name for t in model.graph.initializer}
    rng = np.random.default_rng(2)
    given = [i for i in model.graph.input if i.name not in stored]
    sizes = {i.name: [d.dim_value or 1 for d in i.type.tensor_type.shape.dim] for i in given}
    return model, {n: rng.standard_normal(s).astype(np.float32) for n, s in sizes.items()}


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all constants."""
    return sum(numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
