"""Contiguous groups of the arena: consecutive offsets, unchanged results, one transfer in place of several."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tiny_models import model_of

from polyc.graph_driver import cli
from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.checking.poison import differs, poisoned_run
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.memory import PLANNERS, Placement, check_placement
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError

SIZES = {"a": 3, "b": 50, "c": 17}
GRADIENTS = [f"g{n}" for n in SIZES]


def step(seed: int = 1) -> onnx.ModelProto:
    """A step of gradient descent on three weights: new = w - 0.1 * g, where g follows from the data x."""
    rng = np.random.default_rng(seed)
    nodes, weights = [], {"rate": np.float32(0.1)}
    for n, size in SIZES.items():
        weights[f"k{n}"] = rng.standard_normal((8, size)).astype(np.float32)
        nodes += [
            helper.make_node("MatMul", ["x", f"k{n}"], [f"g{n}"], f"gradient {n}"),
            helper.make_node("Mul", [f"g{n}", "rate"], [f"s{n}"]),
            helper.make_node("Sub", [f"w{n}", f"s{n}"], [f"y{n}"]),
        ]
    inputs: dict[str, Any] = {"x": [4, 8]} | {f"w{n}": [4, size] for n, size in SIZES.items()}
    return model_of(nodes, inputs, {f"y{n}": None for n in SIZES}, weights)


def feeds(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"x": (4, 8)} | {f"w{n}": (4, size) for n, size in SIZES.items()}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def offsets(model: Model) -> list[int]:
    return [model.plan.slots[g].place.offset for g in GRADIENTS]


@pytest.mark.parametrize("planner", [None, *sorted(PLANNERS)])
def test_consecutive_offsets_in_order(planner: str | None, tmp_path: Path) -> None:
    plain = compile_model(step(), threads=1)
    model = compile_model(step(), threads=1, contiguous=[GRADIENTS], planner=planner)
    assert not set(GRADIENTS) & set(plain.plan.slots), "fused without being asked to keep them"
    start, *_ = offsets(model)
    assert offsets(model) == [start, start + 64, start + 64 + 832]  # 4 x 3, 4 x 50, 4 x 17 floats in lines of 64 bytes
    places = {t.name: model.plan.offset_of(t.name) for t in model.plan.lifetimes}
    check_placement(model.plan.lifetimes, Placement(places, model.plan.peak))
    x = feeds(2)
    for name, value in plain(x).items():
        np.testing.assert_allclose(model(x)[name], value, rtol=1e-6, atol=1e-6)
    assert differs(poisoned_run(model, x), model(x)) == []
    model.save(tmp_path / "net")
    assert offsets(load(tmp_path / "net")) == offsets(model)


def gradients_of(model: Model, seed: int) -> bytes:
    """What one transfer takes: all gradients (the steps after them write to outputs only, so they are still there)."""
    start, _, end = offsets(model)
    end += model.plan.slots[GRADIENTS[-1]].nbytes
    model(feeds(seed))
    return bytes(model.executor().arena[start:end].tobytes())


def other_process(model: Model, pipe: Connection) -> None:
    pipe.send_bytes(gradients_of(model, 5))


def test_one_transfer_sums_all_gradients() -> None:
    model = compile_model(step(), threads=1, contiguous=[GRADIENTS])
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=other_process, args=(model, there))
    process.start()
    assert here.poll(60)
    received = here.recv_bytes()  # the only one
    process.join()
    both = np.frombuffer(gradients_of(model, 4), np.float32) + np.frombuffer(received, np.float32)
    for g, at in zip(GRADIENTS, offsets(model), strict=True):
        slot = model.plan.slots[g]
        begin = (at - offsets(model)[0]) // 4
        found = both[begin : begin + slot.nbytes // 4].reshape(slot.shape)
        single = [model.inspect(feeds(s), [g])[g] for s in (4, 5)]
        np.testing.assert_array_equal(found, single[0] + single[1])


@pytest.mark.parametrize(
    ("names", "why"),
    [(["ga", "none"], "there is no tensor 'none'"), (["ga", "ga"], "named twice"), (["ga", "yb"], "an output of"),
     (["ga", "x"], "'x' is an input of the model"), (["ga", "ka"], "'ka' is a constant once the model is compiled")],
)  # fmt: skip
def test_what_cannot_be_contiguous(names: list[str], why: str, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ArgumentError, match=why):
        compile_model(step(), threads=1, contiguous=[names])
    path = tmp_path / "step.onnx"
    path.write_bytes(step().SerializeToString())
    assert cli.main(["compile", str(path), "--contiguous", ",".join(names), "-o", str(tmp_path / "o")]) == 1
    assert why in capsys.readouterr().err


def test_results_of_steps_in_python() -> None:
    """They have memory of their own as those of kernels; what has none is said as it is."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,5] x) => (float[4,5] y, int64[2,N] z)
        <float[2,2] k = {1.0, 2.0, 3.0, 4.0}, int64[2] turned = {5, 4}>
        { a = Relu(x)  b = RandomNormalLike(a)  r = Reshape(b, turned)  t = Transpose(r)  f = Exp(k)  u = ReduceSum(f)
          c = Add(a, t)  d = Mul(c, u)  y = Add(d, b)  n = NonZero(a)  z = Neg(n) }"""
    model = compile_model(onnx.parser.parse_model(text), threads=1, contiguous=[["a", "b"]])
    places = [model.plan.slots[name].place for name in "ab"]
    assert [p.kind for p in places] == ["arena"] * 2 and places[1].offset - places[0].offset == 128
    assert any(s.kind == "host" and "b" in s.results for s in model.plan.steps)
    for name, why in (
        ("r", "'r' lies in the memory of 'b', a tensor, from byte 0 on"), ("f", "'f' is a constant once the model"),
        ("n", "'n' has no size or type known before a run"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=why):
            compile_model(onnx.parser.parse_model(text), threads=1, contiguous=[["a", name]])


def test_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "step.onnx"
    path.write_bytes(step().SerializeToString())
    assert cli.main(["run", str(path), "--check", "--contiguous", "gc,ga", "--contiguous", "gb,sb"]) == 0
    assert cli.main(["compile", str(path), "--target", "c", "--contiguous", "ga,gb", "-o", str(tmp_path / "c")]) == 2
