"""Bounds of errors hold: against exact arithmetic in 40 digits, on random and on adversarial inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import Network, network
from onnx import ModelProto

import polyc
from polyc.graph_driver.cli import main

NETWORKS = 20


def inputs_of(net: Network, seed: int, reach: float) -> np.ndarray:
    """Random inputs in -reach..reach; every third at the ends of the range, every third near 0."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-reach, reach, net.shape)
    kind = seed % 3
    x = np.sign(x) * reach if kind == 1 else x * 2.0 ** -rng.integers(0, 30) if kind == 2 else x
    return x.astype(np.float32)


def check(net: Network, model: ModelProto, runs: int, reach: float = 1.0) -> float:
    """The smallest bound over measured error; fails where a bound is exceeded."""
    bound = polyc.error_bounds(model, {"x": (-reach, reach)}).outputs[net.result]
    compiled = polyc.compile_model(model, threads=1)
    worst = np.zeros(net.shapes[net.result])
    for seed in range(runs):
        x = inputs_of(net, seed, reach)
        error = net.error(x, compiled({"x": x})[net.result])
        assert (error <= bound.error).all(), (seed, float((error / bound.error).max()))
        worst = np.maximum(worst, error)
    return bound.largest / max(float(worst.max()), 1e-300)


@pytest.mark.parametrize("seed", [0, 3, 5, 6])
def test_no_error_is_above_its_bound(seed: int) -> None:
    net, model = network(seed)
    assert 1 <= check(net, model, 12) < np.inf


@pytest.mark.long
@pytest.mark.parametrize("seed", range(NETWORKS))
def test_ten_thousand_runs(seed: int) -> None:
    net, model = network(seed)
    assert 1 <= check(net, model, 10_000 // NETWORKS) < np.inf


def of_text(body: str, ranges: dict[str, tuple[float, float]], inputs: str = "float[2, 3] x") -> polyc.ErrorBounds:
    """The bounds of a small graph with the result y."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[2, 3] y) {{ {body} }}'
    return polyc.error_bounds(onnx.parser.parse_model(text), ranges)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = Reciprocal(x)", "division by what may be 0"),
        ("y = Log(x)", "log of what may not be positive"),
        ("y = Sqrt(x)", "sqrt of what may be negative"),
        ("a = Mul(x, x) b = Mul(a, a) c = Mul(b, b) d = Mul(c, c) e = Mul(d, d) f = Mul(e, e) y = Mul(f, f)",
         "may overflow f32"),
    ],
)  # fmt: skip
def test_what_has_no_bound_says_why(body: str, reason: str) -> None:
    found = of_text(body, {"x": (-8.0, 8.0)}).outputs["y"]
    assert np.isinf(found.error).all()
    assert reason in found.why and "'" in found.why


def test_what_is_not_rounded_has_no_error() -> None:
    body = "a = Relu(x) b = Neg(a) c = Max(b, x) y = Abs(c)"
    assert of_text(body, {"x": (-3.0, 5.0)}).outputs["y"].largest == 0


def test_a_softmax_of_anything_is_bounded() -> None:
    """The exponents are not positive and one of them is 0: 1 / sum cannot grow."""
    found = of_text("y = Softmax(x)", {"x": (-60.0, 60.0)}).outputs["y"]
    assert found.largest < 1e-4


def test_ranges_that_do_not_fit_are_refused() -> None:
    with pytest.raises(polyc.ArgumentError, match="input 'x' .* has no range"):
        of_text("y = Relu(x)", {})
    with pytest.raises(polyc.ArgumentError, match="no input 'z'"):
        of_text("y = Relu(x)", {"z": (0.0, 1.0)})
    with pytest.raises(polyc.ArgumentError, match="empty"):
        of_text("y = Relu(x)", {"x": (1.0, 0.0)})


def test_rows_of_a_table_may_be_any() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int64[2] i) => (float[2, 2] y)
    <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = Gather(w, i) }"""
    found = polyc.error_bounds(onnx.parser.parse_model(text), {}).outputs["y"]
    assert found.largest == 0
    assert found.low.tolist() == [[1, 2]] * 2 and found.high.tolist() == [[5, 6]] * 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, model = network(3)
    onnx.save(model, tmp_path / "m.onnx")
    arguments = ["bounds", str(tmp_path / "m.onnx"), "--range", "x=-1..1"]
    assert main([*arguments, "--json", "--save", str(tmp_path / "b.npz")]) == 0
    row = json.loads(capsys.readouterr().out)["outputs"][0]
    saved = np.load(tmp_path / "b.npz")[net.result]
    assert saved.shape == net.shapes[net.result]
    assert saved[tuple(row["at"])] == saved.max() == row["error"] > 0
    assert main([*arguments, "--tensors"]) == 0
    assert f"{net.result}: {row['error']:.3g}" in capsys.readouterr().out


def test_an_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "lib.py"
    source.write_text(
        "from polyc import dims, empty, f32, op\nN = dims('N')\n@op\ndef total(X: f32[N]) -> f32[1]:\n"
        "    Y = empty(1, f32)\n    Y[0] = 0.0\n    for i in range(N):\n        Y[0] += X[i] * X[i]\n    return Y\n"
    )
    assert main(["bounds", f"{source}:total", "--dim", "N=100", "--range", "X=-1..1", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["outputs"][0]
    u = 2.0**-24
    assert 100 * 50 * u < row["error"] < 100 * 70 * u  # 100 roundings of sums below 128, half an ulp each
