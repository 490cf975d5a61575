"""Inputs fixed at compile time: their conditions vanish, their errors are one line."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import polyc
from polyc.graph_driver.cli import main

RATES = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 18]>
g (float[1, 8] x, int64 rate, float[2] gains) => (float[1, n] y) {
    fast = Constant <value = int64 {16000}> ()
    c = Equal(rate, fast)
    z = If (c) <
        then_branch = t () => (float[1, 8] a) { a = Relu(x) },
        else_branch = e () => (float[1, 16] b) { b = Concat <axis = 1> (x, x) }
    >
    total = ReduceSum <keepdims = 0> (gains)
    y = Mul(z, total)
}
""")


@pytest.mark.parametrize(("rate", "length"), [(16000, 8), (8000, 16)])
def test_a_bound_condition_is_decided(rate: int, length: int) -> None:
    x = np.random.default_rng().standard_normal((1, 8), np.float32)
    model = polyc.compile_model(RATES, bind={"rate": rate, "gains": [0.5, 1.0]})
    assert set(model.inputs) == {"x"} and not model.plan.python_steps
    y = model({"x": x})["y"]
    expected = np.maximum(x, 0) if rate == 16000 else np.concatenate([x, x], 1)
    assert y.shape == (1, length) and np.allclose(y, expected * 1.5, atol=1e-6)


@pytest.mark.parametrize(
    ("bind", "message"),
    [({"speed": 1}, "no input 'speed'"), ({"rate": 1.5}, "int64"), ({"gains": [1.0, 2.0, 3.0]}, r"shape \[3\]"),
     ({"gains": "loud"}, "float32"), ({"rate": [1, 2]}, r"shape \[2\]")],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(bind: dict[str, object], message: str) -> None:
    with pytest.raises(polyc.ModelError, match=message):
        polyc.compile_model(RATES, bind=bind)


def test_the_command_line_binds_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rates.onnx"
    onnx.save(RATES, path)
    assert main(["run", str(path), "--check", "--bind", "rate=8000", "--bind", "gains=0.5,2"]) == 0
    assert "float32[1, 16]" in capsys.readouterr().out
    assert main(["run", str(path), "--bind", "rate"]) == 2
    assert "--bind" in capsys.readouterr().err
