"""`polyc.GraphBuilder`: graphs node by node, their kernels, and refusals with the place."""

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import dims, empty, f32, f64, grid, i64, op

N, M = dims("N M")
RNG = np.random.default_rng(3)
X = RNG.standard_normal((8, 16)).astype("f")


@op
def doubled(A: f32[N, M]) -> f32[N, M]:
    B = empty((N, M), f32)
    for i, j in grid(N, M):
        B[i, j] = A[i, j] * 2.0
    return B


def perceptron(rows: int | str = 8) -> polyc.GraphBuilder:
    g = polyc.GraphBuilder("perceptron")
    x = g.input("x", f32, (rows, 16))
    w = g.constant(RNG.standard_normal((16, 4)).astype("f"), "w")
    h = g.op("Relu", x @ w, name="h")
    g.output("y", np.tanh(h) + 0.5)
    return g


def test_kernels_equal_the_graph_and_its_file() -> None:
    g = perceptron()
    wanted = g.run({"x": X})["y"]
    np.testing.assert_allclose(g.compile(threads=1)({"x": X})["y"], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(polyc.compile_model(g.onnx(), threads=1)({"x": X})["y"], wanted, rtol=1e-5, atol=1e-6)


def test_training_of_a_built_graph() -> None:
    trained = polyc.training(perceptron().onnx(), "MeanSquaredError", threads=1)
    feeds = {"x": X, "target": np.zeros((8, 4), "f")}
    first = trained.step(feeds, polyc.SGD(0.1))
    assert "w" in trained.parameters and trained.step(feeds, polyc.SGD(0.1)) < first


def test_one_model_for_all_rows() -> None:
    g = perceptron("N")
    model, exported = g.compile(threads=1), polyc.compile_model(g.onnx(), threads=1)
    for rows in (1, 3, 50):
        x = RNG.standard_normal((rows, 16)).astype("f")
        np.testing.assert_allclose(model({"x": x})["y"], exported({"x": x})["y"], rtol=1e-5, atol=1e-6)
        assert model({"x": x})["y"].shape == (rows, 4)


def test_operators_of_the_language_and_several_results() -> None:
    g = polyc.GraphBuilder()
    x = g.input("x", f32, (8, 16))
    values, positions = g.op("TopK", doubled(x), np.array([3]), name="top")
    g.output("values", "top")
    g.output("positions", positions)
    found, wanted = g.compile(threads=1)({"x": X}), np.sort(X * 2, axis=1)[:, :-4:-1]
    np.testing.assert_array_equal(found["values"], wanted)
    np.testing.assert_array_equal(np.take_along_axis(X * 2, found["positions"], 1), wanted)
    assert values.shape == (8, 3)
    with pytest.raises(polyc.ModelError, match="ONNX has no operator doubled"):
        g.onnx()


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda g, x: g.op("Tahn", x), "did you mean Tan"),
        (lambda g, x: g.op("MatMul", x, x), "Incompatible dimensions"),
        (lambda g, x: g.op("Add", x, g.input("d", f64, (8, 16))), "inconsistent type"),
        (lambda g, x: g.op("Gemm", x, x, transb=1), "Gemm has no attribute 'transb'"),
        (lambda g, x: g.op("Softmax", x, axis=7), "axis"),
        (lambda g, x: g.op("Concat", x, x), "Required attribute 'axis'"),
        (lambda g, x: g.op("Relu"), "Relu takes 1 operands, not 0"),
        (lambda g, x: g.op("Relu", "xx"), "no tensor 'xx': did you mean 'x'?"),
        (lambda g, x: g.op("Relu", x, name="x"), "a tensor 'x' already"),
        (lambda g, x: g.op("Relu", object()), "object is no array"),
        (lambda g, x: g.op("Reshape", x, np.array([3, 5])), "cannot become"),
        (lambda g, x: x @ np.ones((3, 4), "f"), "Incompatible dimensions"),
        (lambda g, x: x + perceptron()["h"], "belongs to another graph"),
        (lambda g, x: g.input("x", f32, (1,)), "a tensor 'x' already"),
        (lambda g, x: g.input("y", "f32", (1,)), "is no element type"),
        (lambda g, x: g.input("y", f32, (-1,)), "is no extent"),
        (lambda g, x: g.input("y", f32, "N"), "a list of extents"),
        (lambda g, x: g.output("y", 3), "no tensor of this graph"),
        (lambda g, x: g.output("y", "q"), "no tensor 'q'"),
        (lambda g, x: g["weights"], "no tensor 'weights'"),
        (lambda g, x: g.constant(np.array(["a"])), "no element type"),
        (lambda g, x: g.compile(), "has no outputs"),
        (lambda g, x: doubled(x.astype("d")), "takes A as f32, not f64"),
        (lambda g, x: np.take(x, x), "they are integers"),
    ],
)
def test_refusals_say_what_and_where(write: Callable[..., Any], text: str) -> None:
    g = polyc.GraphBuilder()
    x = g.input("x", f32, (8, 16))
    with pytest.raises(polyc.ModelError) as refused:
        write(g, x)
    said = str(refused.value)
    assert text in said and said.startswith("test_builder.py:") and "\n" not in said
    g.output("z", g.op("Relu", x))  # the graph is as it was before
    np.testing.assert_array_equal(g.run({n: X for n in g.graph.inputs if n == "x"} | _others(g))["z"], X * (X > 0))


def _others(g: polyc.GraphBuilder) -> dict[str, np.ndarray]:
    return {"d": np.zeros((8, 16))} if "d" in g.graph.inputs else {}


def test_inputs_of_a_run() -> None:
    g = perceptron()
    with pytest.raises(polyc.ArgumentError, match="must be x: f32"):
        g.run({"x": X.astype("d")})
    with pytest.raises(polyc.ModelError, match="symbolic"):
        perceptron("N").run({"x": X})
    with pytest.raises(polyc.ArgumentError, match="thread"):
        g.compile(thread=2)


def test_integers_stay_integers() -> None:
    g = polyc.GraphBuilder()
    k = g.input("k", i64, (5,))
    g.output("y", k * 3 // 2)
    given = np.arange(-2, 3)
    np.testing.assert_array_equal(g.compile(threads=1)({"k": given})["y"], given * 3 // 2)


def test_the_page_runs() -> None:
    path = Path(__file__).resolve().parents[2] / "docs" / "graphs-in-python.md"
    text = path.read_text(encoding="utf-8")
    program = "\n".join(part.split("```")[0] for part in text.split("```python\n")[1:])
    linecache.cache[str(path)] = (len(program), None, program.splitlines(True), str(path))  # operators read their text
    exec(compile(program, str(path), "exec"), {"__name__": "page"})
