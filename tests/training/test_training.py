"""Training of small networks: optimisers against their formulas, states that are kept, refusals in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import polyc
from polyc import dims, f32

N = dims("N")


def weight(name: str, *shape: int) -> onnx.TensorProto:
    rng = np.random.default_rng(len(name) + sum(shape))
    return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[-1])).astype("f"), name)


def mlp() -> onnx.ModelProto:
    """8 numbers to 3 classes, by 16 between them."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        helper.make_node("Tanh", ["h"], ["a"]),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["y"], transB=1),
    ]
    weights = [weight("w1", 16, 8), weight("b1", 16), weight("w2", 3, 16), weight("b2", 3)]
    x, y = (helper.make_tensor_value_info(n, 1, ["N", k]) for n, k in (("x", 8), ("y", 3)))
    graph = helper.make_graph(nodes, "mlp", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def batch(n: int = 32) -> dict[str, np.ndarray]:
    x = np.random.default_rng(3).standard_normal((n, 8)).astype("f")
    return {"x": x, "target": x[:, :3].argmax(1)}


def numpy_step(w: dict[str, np.ndarray], x: np.ndarray, target: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the network in f64, by hand."""
    a = np.tanh(x @ w["w1"].T + w["b1"])
    y = a @ w["w2"].T + w["b2"]
    p = np.exp(y - y.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(x))
    g = p.copy()
    g[rows, target] -= 1
    g /= len(x)
    h = (g @ w["w2"]) * (1 - a * a)
    return -np.log(p[rows, target]).mean(), {"w1": h.T @ x, "b1": h.sum(0), "w2": g.T @ a, "b2": g.sum(0)}


def numpy_update(kind: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any], step: int) -> None:
    if kind == "sgd":
        w -= 0.1 * (g + 0.01 * w)
    elif kind in ("momentum", "nesterov"):
        v = state["v"] = 0.9 * state.get("v", 0) + g
        w -= 0.1 * (g + 0.9 * v if kind == "nesterov" else v)
    else:
        if kind == "adamw":
            w *= 1 - 0.01 * 0.05
        m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
        v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
        w -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)


OPTIMISERS = {
    "sgd": polyc.SGD(0.1, decay=0.01),
    "momentum": polyc.SGD(0.1, momentum=0.9),
    "nesterov": polyc.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": polyc.Adam(0.01),
    "adamw": polyc.AdamW(0.01, decay=0.05),
}


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_steps_are_those_of_the_formulas(kind: str) -> None:
    trained, feeds = polyc.training(mlp(), "SoftmaxCrossEntropyLoss", threads=1), batch()
    w = {n: p.astype("d") for n, p in trained.parameters.items()}
    states: dict[str, dict[str, Any]] = {n: {} for n in w}
    for step in range(1, 31):
        loss = trained.step(feeds, OPTIMISERS[kind])
        expected, grads = numpy_step(w, feeds["x"].astype("d"), feeds["target"])
        assert abs(loss - expected) < 1e-4
        for n, g in grads.items():
            numpy_update(kind, w[n], g, states[n], step)
    for n, p in trained.parameters.items():
        np.testing.assert_allclose(p, w[n], atol=1e-3)


def test_a_state_saves_and_loads_and_the_model_is_exported(tmp_path: Path) -> None:
    feeds, adam = batch(), polyc.Adam(0.01)
    first = polyc.training(mlp(), "SoftmaxCrossEntropyLoss", threads=1)
    for _ in range(5):
        first.step(feeds, adam)
    first.save(tmp_path / "state.npz")
    going_on = [first.step(feeds, adam) for _ in range(3)]
    second = polyc.training(mlp(), "SoftmaxCrossEntropyLoss", threads=1)
    second.load(tmp_path / "state.npz")
    assert [second.step(feeds, adam) for _ in range(3)] == going_on
    found = polyc.compile_model(second.exported(), threads=1)({"x": feeds["x"]})["y"]
    np.testing.assert_allclose(
        found, np.tanh(feeds["x"] @ second.parameters["w1"].T + second.parameters["b1"])
        @ second.parameters["w2"].T + second.parameters["b2"], rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_masks_go_on_where_they_were(tmp_path: Path) -> None:
    """A dropout's random numbers are a part of the state: steps after a load have equal bits."""
    model, feeds = mlp(), batch()
    last = model.graph.node[-1]
    ratio, training = numpy_helper.from_array(np.array(0.5, "f"), "r"), numpy_helper.from_array(np.array(True), "t")
    model.graph.initializer.extend([ratio, training])
    model.graph.node.insert(len(model.graph.node) - 1, helper.make_node("Dropout", [last.input[0], "r", "t"], ["kept"]))
    model.graph.node[-1].input[0] = "kept"
    one, two = (polyc.training(model, "SoftmaxCrossEntropyLoss", threads=1) for _ in range(2))
    for _ in range(3):
        one.step(feeds, polyc.SGD(0.1))
    one.save(tmp_path / "state.npz")
    two.load(tmp_path / "state.npz")
    losses = [one.step(feeds, polyc.SGD(0.1)) for _ in range(3)]
    assert [two.step(feeds, polyc.SGD(0.1)) for _ in range(3)] == losses
    assert len(set(losses)) == 3
    with pytest.raises(polyc.BuildError, match="cannot write .*: No such file"):
        one.save(tmp_path / "missing" / "state.npz")


def test_files_that_are_no_state_are_refused(tmp_path: Path) -> None:
    trained = polyc.training(mlp(), "SoftmaxCrossEntropyLoss", threads=1)
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    with pytest.raises(polyc.ModelError, match="no state of a training"):
        trained.load(tmp_path / "broken.npz")
    np.savez(tmp_path / "other.npz", other=np.zeros(3))
    with pytest.raises(polyc.ModelError, match="of another model: it differs in 'other'"):
        trained.load(tmp_path / "other.npz")
    np.savez(tmp_path / "pickled.npz", other=np.array([{}], object))
    with pytest.raises(polyc.ModelError, match="no state of a training"):
        trained.load(tmp_path / "pickled.npz")


def refused(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], **options: Any) -> str:
    x, y = (helper.make_tensor_value_info(n, 1, None) for n in ("x", "loss"))
    x = helper.make_tensor_value_info("x", 1, [2, 3])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(polyc.PolycError) as refusal:
        polyc.training(model, options.pop("loss", "loss"), options.pop("wrt", None), **options).gradients(
            {"x": np.zeros((2, 3), "f")}
        )
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_refusals_say_what_and_where() -> None:
    product = helper.make_node("Mul", ["x", "w"], ["z"])
    total = helper.make_node("ReduceSum", ["z"], ["loss"], keepdims=0)
    w = weight("w", 2, 3)
    assert "no weight 'v' (it has w)" in refused([product, total], [w], wrt=["v"])
    assert "no loss 'Entropy'" in refused([product, total], [w], loss="Entropy")
    assert "the loss 'z' is z: f32[2, 3]" in refused([product, total], [w], loss="z")
    whole = numpy_helper.from_array(np.ones((2, 3), np.int64), "k")
    chain = [helper.make_node("Cast", ["k"], ["c"], to=1), helper.make_node("Mul", ["x", "c"], ["z"]), total]
    assert "wrt: 'k' is int64: a gradient is of floats" in refused(chain, [whole], wrt=["k"])


@polyc.op
def half_squares(y: f32[N, 3], t: f32[N, 3]) -> f32[1]:
    total = polyc.zeros(1, f32)
    for i, j in polyc.grid(N, 3):
        total[0] += 0.5 * (y[i, j] - t[i, j]) * (y[i, j] - t[i, j])
    return total


def test_a_loss_may_be_an_operator_of_the_program() -> None:
    feeds = {"x": batch()["x"], "target": np.ones((32, 3), "f")}
    own = polyc.training(mlp(), half_squares, threads=1)
    named = polyc.training(mlp(), "MeanSquaredError", threads=1)
    loss, gradients = own.gradients(feeds)
    mean, expected = named.gradients(feeds)
    assert abs(loss - mean * 48) < 1e-3
    for name, g in expected.items():
        np.testing.assert_allclose(gradients[name], g * 48, rtol=1e-3, atol=1e-4)


def test_scaled_losses_in_f16_are_learned_and_steps_that_overflow_are_left_out() -> None:
    feeds, adam = batch(), polyc.Adam(0.02)
    scaling = polyc.LossScaling(factor=2.0**40)  # too large for f16: halved until gradients are finite
    trained = polyc.training(mlp(), "SoftmaxCrossEntropyLoss", threads=1, dtype="f16", scaling=scaling)
    start = {n: p.copy() for n, p in trained.parameters.items()}
    first = trained.step(feeds, adam)
    assert trained.steps == 0 and all((start[n] == p).all() for n, p in trained.parameters.items())
    for _ in range(90):
        last = trained.step(feeds, adam)
    assert 0 < trained.steps < 90 and scaling.factor < 2.0**40 and last < 0.5 * first
