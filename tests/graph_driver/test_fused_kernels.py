"""What fusion is for: fewer kernels, intermediates that are stored nowhere, a reason for every pair apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from compared import checked, labels, node
from tiny_models import model_of

from polyc.emit import targets
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.choosing.select import select
from polyc.graph_driver.cli import main
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import formed, optimise
from polyc.graph_driver.fusion.blocking import blocked_pairs
from polyc.graph_driver.options import CompileOptions
from polyc.scheduler.strategies.planner import first_loops

rng = np.random.default_rng()


def gauss(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def normalised(channels: int) -> dict[str, np.ndarray]:
    names = ("scale", "shift", "mean", "variance")
    return {n: np.abs(gauss(channels)) + np.float32(0.5) for n in names}


def block(kernel: int = 5, stride: int = 1) -> onnx.ModelProto:
    """Convolution with bias, batch normalisation, ReLU."""
    nodes = [
        node("Conv", ["x", "w", "b"], "c", pads=[kernel // 2] * 4, strides=[stride] * 2),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], "n"),
        node("Relu", ["n"], "y"),
    ]
    given = {"w": gauss(12, 6, kernel, kernel) / 8, "b": gauss(12), **normalised(12)}
    return model_of(nodes, {"x": [1, 6, 20, 22]}, {"y": None}, given)


@pytest.mark.parametrize("kernel, stride", [(5, 1), (3, 2), (1, 1)])
def test_convolution_bias_normalisation_and_relu_are_one_kernel_with_one_write(kernel: int, stride: int) -> None:
    proto = block(kernel, stride)
    model, parts = checked(proto), compile_model(proto, threads=1, fuse=False)
    assert labels(model) == ["Conv+Relu"] and labels(parts)[-1] == "Relu" and len(labels(parts)) > 1
    (step,) = model.plan.steps
    assert [model.plan.slots[a].place.kind for a in step.args].count("output") == 1
    made = {"c", "n"} & set(model.plan.slots)
    assert not made and {"c", "n"} & set(parts.plan.slots)


def wide_chain(count: int = 10) -> onnx.ModelProto:
    kinds = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Exp", "Softplus", "Erf", "Sin", "Cos")
    nodes = [node(kinds[k], ["x" if k == 0 else f"t{k - 1}"], f"t{k}" if k < count - 1 else "y") for k in range(count)]
    return model_of(nodes, {"x": [64, 250]}, {"y": None}, {})


def test_a_chain_of_ten_moves_its_input_and_its_output_only() -> None:
    model = checked(wide_chain())
    assert len(labels(model)) == 1 and labels(model)[0].count("+") == 9
    (step,) = model.plan.steps
    assert sum(model.plan.slots[a].nbytes for a in step.args) == 2 * 64 * 250 * 4 and model.plan.peak == 0


def test_the_peak_falls_by_the_intermediates_that_are_contracted() -> None:
    """Apart, a product waits in memory while its function is made; in one kernel both are registers."""
    nodes = [
        node("MatMul", ["x", "w"], "a"), node("Tanh", ["a"], "b"), node("Mul", ["a", "b"], "c"),
        node("MatMul", ["c", "v"], "y"),
    ]  # fmt: skip
    proto = model_of(nodes, {"x": [40, 64]}, {"y": None}, {"w": gauss(64, 96) / 8, "v": gauss(96, 32) / 8})
    model, parts = checked(proto), compile_model(proto, threads=1, fuse=False)
    assert labels(model) == ["MatMul+Tanh+Mul", "MatMul"] and len(labels(parts)) == 4
    between = 40 * 96 * 4
    assert not {"a", "b"} & set(model.plan.slots) and {"a", "b", "c"} <= set(parts.plan.slots)
    assert parts.plan.peak == 2 * between and model.plan.peak == between


def test_an_attention_node_is_expanded_and_fused_anew() -> None:
    length = int((targets.host().l2 / 4 / 3) ** 0.5) + 5  # scores of all heads leave L2
    given = {n: [1, 3, length, 16] for n in "qkv"}
    model = checked(model_of([node("Attention", ["q", "k", "v"], "y")], given, {"y": None}, {}, opset=23))
    joined = [label for label in labels(model) if label.count("MatMul") == 2 and "Softmax" in label]
    assert len(joined) == 1 and "Attention" not in labels(model)
    assert any("replaced by their definition: 1 Attention" in n for n in model.report().notes)
    assert any("rows of scores at a time" in d for d in model.report().decisions)


def test_a_pair_of_nodes_is_one_nest() -> None:
    """The border between two ONNX nodes is none: one loop around both."""
    platform, options = platform_of("cpu", 1), CompileOptions(threads=1)
    nodes = [node("ReduceMax", ["x"], "m", axes=[1], keepdims=1), node("Sub", ["x", "m"], "y")]
    graph = import_with(model_of(nodes, {"x": [9, 70]}, {"y": None}, {}, opset=13), platform, options)
    optimise(graph, platform, options)
    (group,) = formed(graph, platform, options)[1]
    from polyc.scheduler.strategies.auto import automatic

    assert group.scop is not None and len(first_loops(automatic(group.scop, targets.host()).tree)) == 1
    apart = formed(graph, platform, CompileOptions(threads=1, fuse=False))[1]
    assert len(apart) == 2


def test_operators_keep_their_borders_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, x = tmp_path / "chain.onnx", tmp_path / "x.npy"
    onnx.save(wide_chain(), path)
    np.save(x, gauss(64, 250))
    for given, count in (([], 1), (["--keep-op-borders"], 10)):
        assert main(["run", str(path), "--check", "--threads", "1", "--input", f"x={x}", *given]) == 0
        capsys.readouterr()
        assert main(["inspect", str(path), "--stage", "plan", "--json", "--threads", "1", *given]) == 0
        assert json.loads(capsys.readouterr().out)["text"].count(" kernel ") == count


def two_images() -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w"], "a", strides=[2, 2], pads=[1] * 4),
        node("GlobalAveragePool", ["a"], "p"),
        node("Softmax", ["p"], "y", axis=1),
    ]
    return model_of(nodes, {"x": [1, 8, 20, 20]}, {"y": None}, {"w": gauss(8, 8, 3, 3)})


def test_every_pair_that_stays_apart_has_its_dependence() -> None:
    platform, options = platform_of("cpu", 1), CompileOptions(threads=1)
    graph = import_with(two_images(), platform, options)
    optimise(graph, platform, options)
    pairs = {(p["from"], p["to"]): p for p in blocked_pairs(formed(graph, platform, options)[1])}
    assert set(pairs) == {("Conv", "GlobalAveragePool"), ("GlobalAveragePool", "Softmax")}
    blocked = pairs["Conv", "GlobalAveragePool"]
    assert not blocked["legal"] and " reads t[" in blocked["reason"] and "writes before it (RAW)" in blocked["reason"]
    assert pairs["GlobalAveragePool", "Softmax"]["legal"]


def test_explain_prints_them(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(two_images(), tmp_path / "m.onnx")
    assert main(["explain", str(tmp_path / "m.onnx"), "--verbose", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "  blocked   Conv -> GlobalAveragePool ('a'): " in out


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "bvlc_alexnet"])
def test_every_node_has_several_implementations(name: str) -> None:
    platform, options = platform_of("cpu", 1), CompileOptions(threads=1)
    graph = import_with(Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx", platform, options)
    optimise(graph, platform, options)
    for found in select(graph, targets.host()):
        assert len([c for c in found.candidates if c.cost is not None]) >= 2, str(found)


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_product_reads_both_orders_of_its_operand_with_stride_one(transposed: int, tmp_path, capsys) -> None:
    """Row by row the panel is copied as it lies; column by column it is transposed on the way, in other code."""
    shape = [192, 256] if transposed else [256, 192]
    proto = model_of([node("Gemm", ["a", "b"], "y", transB=transposed)], {"a": [128, 256], "b": shape}, {"y": None}, {})
    checked(proto)
    onnx.save(proto, tmp_path / "g.onnx")
    assert main(["explain", str(tmp_path / "g.onnx"), "--verbose", "--threads", "1"]) == 0
    assert "x1 packed in panels" in capsys.readouterr().out
