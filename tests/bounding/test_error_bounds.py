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
from polyc import dims, f32, op, zeros
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.graph_driver.bounding.limited import limited
from polyc.graph_driver.bounding.operator import operator_bounds
from polyc.graph_driver.cli import main
from polyc.poly.errors import ArgumentError
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

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


# ---- sums in blocks ----------------------------------------------------------------------------------

N, M = dims("N M")


@op
def rows(X: f32[M, N], W: f32[N]) -> f32[M]:
    Y = zeros(M, f32)
    for i in range(M):
        for j in range(N):
            Y[i] += X[i, j] * W[j]
    return Y


def adversarial(m: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ends of -1..1, of a large start with small terms that it swallows, of what cancels, and at random."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (m, n)).astype(np.float32)
    x[0] = 1
    x[1] = np.where(np.arange(n) < n // 2, 1, np.float32(2.0**-14))
    x[2] = np.where(np.arange(n) % 2 == 0, 1, -1 + 2.0**-20)
    x[3] = np.where(np.arange(n) < n // 2, 1, -1) * (1 - 2.0**-24)
    return x, np.where(rng.random(n) < 0.5, np.float32(1), np.float32(1 - 2.0**-23))


@pytest.mark.parametrize("n", [997, pytest.param(1024, marks=pytest.mark.long)])
def test_the_depth_of_sums_in_a_schedule_is_their_bound(n: int) -> None:
    """Blocks by either loop of a split one; the bound falls with the depth, and holds however the rest is scheduled."""
    scop = specialise(rows.scop(), {"M": 6, "N": n})
    ranges = {"X": (-1.0, 1.0), "W": (0.0, 1.0)}
    start = Schedule.start(scop)
    plain = operator_bounds(scop, ranges).outputs["Y"].largest
    found = {}
    for size in (8, 32, 256):
        for loop in ("j.out", "j.in"):
            blocked = start.split("j", size).rfactor(loop)
            bound = operator_bounds(blocked.scop, ranges).outputs["Y"]
            found[size, loop] = bound.largest
            for made in (blocked, automatic(blocked.scop, targets.host(), 1)):
                kernel = compile_kernel(made.scop, made.tree)
                for seed in range(3):
                    x, w = adversarial(6, n, seed)
                    exact = x.astype(np.float64) @ w.astype(np.float64)  # 48 bits of products, 10 of terms: within u^2
                    error = np.abs(kernel(x, w) - exact)
                    assert (error <= bound.error + n * n * 2.0**-52).all(), (size, loop, seed)
    assert found[32, "j.out"] < plain / 10 and found[32, "j.out"] < min(found[8, "j.out"], found[256, "j.out"])


def test_blocks_are_as_large_as_a_bound_allows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scop = specialise(rows.scop(), {"M": 4, "N": 1024})
    ranges = {"X": (-1.0, 1.0), "W": (0.0, 1.0)}
    plain = operator_bounds(scop, ranges).outputs["Y"].largest
    sizes = []
    for part in (1.0, 0.6, 0.3, 0.1):
        schedule, found = limited(scop, ranges, plain * part)
        assert found.outputs["Y"].largest <= plain * part
        sizes.append([s.args["size"] for s in schedule.trace if s.name == "split"])
    assert sizes[0] == [] and sizes[1] > sizes[2] > sizes[3]
    with pytest.raises(ArgumentError, match="no blocks of sums bound the errors of rows by"):
        limited(scop, ranges, plain / 1000)

    source = tmp_path / "lib.py"
    source.write_text(
        "from polyc import dims, f32, op, zeros\nN = dims('N')\n@op\ndef total(X: f32[N]) -> f32[1]:\n"
        "    Y = zeros(1, f32)\n    for i in range(N):\n        Y[0] += X[i]\n    return Y\n"
    )
    asked = ["bounds", f"{source}:total", "--dim", "N=4096", "--range", "X=-1..1", "--json"]

    def answer(*more: str) -> float:
        assert main([*asked, *more]) == 0
        return float(json.loads(capsys.readouterr().out)["outputs"][0]["error"])

    alone, held = answer(), answer("--at-most", "0.1", "--save-schedule", str(tmp_path / "s.jsonl"))
    assert held <= 0.1 < alone and answer("--schedule", str(tmp_path / "s.jsonl")) == held
