"""Every placing pass alone on random graphs: those make nodes of polyc's own, so graphs are compiled as they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.checking.differential import compiled_outputs, differential
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.passes.manager import BY_NAME, PLACING

ROUNDING = 2e-5  # of floats, relative to the largest element
FEW, MANY = range(3), range(3, 16)
Values = dict[str, np.ndarray]


class Drawn:
    """A graph that is drawn node by node: `x` is what the next node reads."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.stored: Values = {}
        self.given: Values = {}
        self.opsets = [helper.make_opsetid("", 19)]

    def some(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def floats(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def codes(self, kind: type, *shape: int) -> np.ndarray:
        info = np.iinfo(kind)
        return self.rng.integers(info.min, info.max + 1, shape).astype(kind)

    def input(self, value: np.ndarray) -> str:
        name = f"x{len(self.given)}"
        self.given[name] = value
        return name

    def constant(self, value: Any) -> str:
        name = f"w{len(self.stored)}"
        self.stored[name] = np.asarray(value)
        return name

    def node(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attrs: Any) -> Any:
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"n{len(self.nodes)}", **attrs))
        return names[0] if outputs == 1 else names

    def model(self, *results: str) -> onnx.ModelProto:
        def typed(name: str, value: np.ndarray) -> Any:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)

        graph = helper.make_graph(
            self.nodes, "drawn", [typed(n, v) for n, v in self.given.items()],
            [helper.make_empty_tensor_value_info(n) for n in results],
            [numpy_helper.from_array(v, n) for n, v in self.stored.items()],
        )  # fmt: skip
        whole = helper.make_model(graph, opset_imports=self.opsets, ir_version=9)
        return onnx.shape_inference.infer_shapes(whole)


def branches(seed: int) -> tuple[onnx.ModelProto, Values]:
    """1x1 convolutions of one image, functions of them, parts joined, cut apart and reshaped."""
    d = Drawn(seed)
    c, size = d.some(16, 24), d.some(6, 9)
    x = d.input(d.floats(1, c, size, size))
    wide = [d.some(8, 12, 16) for _ in range(d.some(2, 3))]
    made = []
    for o in wide:
        y = d.node("Conv", [x, d.constant(d.floats(o, c, 1, 1) / 4), d.constant(d.floats(o))])
        made.append(d.node("Relu", [y]))
    whole = d.node("Concat", made, axis=1)
    parts = d.node("Split", [whole, d.constant(np.array(wide[::-1], np.int64))], len(wide), axis=1)
    flat = d.node("Reshape", [parts[0], d.constant(np.array([1, -1], np.int64))])
    return d.model(d.node(d.some("Sigmoid", "Neg"), [flat]), d.node("Abs", [parts[-1]])), d.given


def winograd(seed: int) -> tuple[onnx.ModelProto, Values]:
    """3x3 convolutions of stride 1, as wide as Winograd's method wants them."""
    d = Drawn(seed)
    c, o, size = d.some(32, 64), d.some(32, 48), d.some(14, 20)
    y = d.node("Conv", [d.input(d.floats(1, c, size, size)), d.constant(d.floats(o, c, 3, 3) / 16)], pads=[1] * 4)
    return d.model(d.node(d.some("Relu", "Neg"), [y])), d.given


def recurrent(seed: int) -> tuple[onnx.ModelProto, Values]:
    """A recurrent layer in both directions."""
    d = Drawn(seed)
    kind, steps, width, hidden = d.some("LSTM", "GRU", "RNN"), d.some(3, 5), d.some(4, 6), d.some(5, 8)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    weights = [(2, gates * hidden, width), (2, gates * hidden, hidden), (2, 2 * gates * hidden)]
    stored = [d.constant(d.floats(*s) / 4) for s in weights]
    y, last = d.node(kind, [d.input(d.floats(steps, 2, width)), *stored], 2, hidden_size=hidden,
                     direction="bidirectional")  # fmt: skip
    return d.model(y, last), d.given


def sparse(seed: int) -> tuple[onnx.ModelProto, Values]:
    """A product whose weights have blocks of zeros."""
    d = Drawn(seed)
    rows, depth, columns = d.some(8, 32), 256, 256
    w = d.floats(depth, columns) / 16
    blocks = w.reshape(depth // 32, 32, columns // 32, 32)
    for i in range(depth // 32):
        for j in range(columns // 32):
            if d.rng.random() < 0.9:
                blocks[i, :, j] = 0
    y = d.node("MatMul", [d.input(d.floats(rows, depth)), d.constant(w)])
    return d.model(d.node("Relu", [y])), d.given


def quantised(seed: int) -> tuple[onnx.ModelProto, Values]:
    """Images and rows in codes: convolutions and products by ONNX's own operators, or between (de)quantisations."""
    d = Drawn(seed)
    kind = d.some(np.uint8, np.int8)
    scale, zero = np.float32(0.02), np.array(d.some(0, 3), kind)
    weights, shape = np.int8, (1, 16, 8, 8) if d.some(True, False) else (5, 32)
    x, s, z = d.input(d.floats(*shape)), d.constant(scale), d.constant(zero)
    q = d.node("QuantizeLinear", [x, s, z])
    image = len(shape) == 4
    w = d.constant(d.codes(weights, *((8, 16, 3, 3) if image else (32, 24))))
    ws, wz = d.constant(np.float32(0.01)), d.constant(np.array(0, weights))
    ys, yz = d.constant(np.float32(0.3)), d.constant(np.array(d.some(0, 5), kind))
    attrs = {"pads": [1] * 4} if image else {}
    if d.some(True, False):
        y = d.node("QLinearConv" if image else "QLinearMatMul", [q, s, z, w, ws, wz, ys, yz], **attrs)
    else:
        wide, narrow = d.node("DequantizeLinear", [q, s, z]), d.node("DequantizeLinear", [w, ws, wz])
        y = d.node("QuantizeLinear", [d.node("Conv" if image else "MatMul", [wide, narrow], **attrs), ys, yz])
    return d.model(d.node("DequantizeLinear", [y, ys, yz])), d.given


def integers(seed: int) -> tuple[onnx.ModelProto, Values]:
    """Sums of products of codes, as 32-bit integers."""
    d = Drawn(seed)
    x = d.input(d.codes(np.uint8, d.some(1, 5), 32))
    w, zero = d.constant(d.codes(np.int8, 32, d.some(17, 24))), d.constant(np.uint8(d.some(0, 128)))
    return d.model(d.node("MatMulInteger", [x, w, zero])), d.given


def four_bits(seed: int) -> tuple[onnx.ModelProto, Values]:
    """A product with weights of 4 bits in blocks."""
    d = Drawn(seed)
    d.opsets.append(helper.make_opsetid("com.microsoft", 1))
    rows, depth, columns, block = d.some(1, 4), 64, d.some(16, 24), 32
    w = d.constant(d.codes(np.uint8, columns, depth // block, block // 2))
    scales = d.constant(np.abs(d.floats(columns * (depth // block))) / 8)
    y = d.node("MatMulNBits", [d.input(d.floats(rows, depth)), w, scales], domain="com.microsoft", K=depth, N=columns,
               bits=4, block_size=block)  # fmt: skip
    return d.model(y), d.given


def one_token(seed: int) -> tuple[onnx.ModelProto, Values]:
    """Two or three products of one row: queries, keys and values of a token."""
    d = Drawn(seed)
    depth = d.some(48, 64)
    x, results = d.input(d.floats(1, d.some(1, 1, 9), depth)), []
    for _ in range(d.some(2, 3)):
        columns = d.some(16, 32)
        y = d.node("MatMul", [x, d.constant(d.floats(depth, columns) / 8)])
        biased = d.node("Add", [y, d.constant(d.floats(columns))])
        results.append(d.node("ReduceSum", [biased], keepdims=1))
    return d.model(*results), d.given


def many_operands(seed: int) -> tuple[onnx.ModelProto, Values]:
    """A concatenation and a sum of more operands than a target takes."""
    d = Drawn(seed)
    x = d.input(d.floats(3, 5))
    several = [d.node(k, [x]) for k in ("Neg", "Abs", "Relu", "Tanh", "Exp")[: d.some(3, 4, 5)]]
    return d.model(d.node("Concat", several, axis=d.some(0, 1)), d.node("Sum", several)), d.given


FAMILIES: dict[str, Sequence[Callable[[int], tuple[onnx.ModelProto, Values]]]] = {
    "directions": [recurrent], "siblings": [one_token], "views": [branches], "parts": [branches],
    "winograd": [winograd], "zero-blocks": [sparse], "byte-images": [quantised],
    "byte-products": [quantised, integers], "quantised-convolutions": [quantised], "reciprocals": [quantised],
    "integer-pairs": [quantised, integers], "integer-products": [integers], "weight-panels": [four_bits],
    "operand-limits": [many_operands],
}  # fmt: skip
ELSEWHERE = {
    "external": "only with a function of the user's: test_external.py",
    "bf16-pairs": "only for machines that multiply pairs of bf16: test_bf16_pairs.py",
    "precision": "only with --precision: test_precision.py draws networks",
    "target-types": "only for targets without a type: test_target_passes.py",
}
PLATFORM, OPTIONS = platform_of("cpu", 1), CompileOptions(threads=1)


def limited(folder: Path) -> Path:
    """A target whose operators take two operands."""
    path = folder / "narrow.toml"
    path.write_text('base = "x86-64-v3"\nmax_concat_inputs = 2\nmax_sum_inputs = 2\n')
    return path


def test_every_placing_pass_has_graphs() -> None:
    placing = {p.name for p in (*BY_NAME.values(), *OPTIONS.pipeline(PLATFORM)) if p.phase == PLACING}
    assert placing == FAMILIES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"])
@pytest.mark.parametrize("name", FAMILIES)
def test_each_placing_pass_alone(name: str, seeds: range, tmp_path: Path) -> None:
    """What it did somewhere, and nowhere more than it may change: codes and integers not at all, floats by rounding."""
    options = CompileOptions(limited(tmp_path), threads=1) if name == "operand-limits" else OPTIONS
    platform = platform_of(options.target, 1)
    (step,) = [p for p in options.pipeline(platform) if p.name == name]
    did = 0
    for family in FAMILIES[name]:
        for seed in seeds:
            model, feeds = family(seed)
            evaluate = compiled_outputs(platform, options, feeds)
            verdict = differential(import_model(model), [step], platform.machine, evaluate, ROUNDING)
            assert verdict.guilty is None, f"{family.__name__}({seed}): {verdict}"
            did += sum(s.did != "nothing to do" for s in verdict.stages)
    assert did >= 1
