"""`polyc certify`: certificates of operators and models, and the checker that stands by itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from polyc.graph_driver.cli import main

DYNAMIC = """
from polyc import dims, f64, i64, inout, op
n = dims("N")
@op
def rows(P: i64[n + 1], A: inout(f64[n])):
    for i in range(n):
        for k in range(P[i], P[i + 1]):
            A[i] += f64(k)
"""


def network(path: Path) -> Path:
    rng = np.random.default_rng(0)
    weights = numpy_helper.from_array(rng.standard_normal((4, 2, 3, 3)).astype("f"), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 9, 9])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def check_again(folder: Path) -> subprocess.CompletedProcess[str]:
    files = sorted(f.name for f in folder.glob("*.json"))
    command = [sys.executable, "-E", "-P", "check.pyz", *files]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def turned(folder: Path) -> subprocess.CompletedProcess[str]:
    """What the checker says of the sum from its last product to its first."""
    (file,) = folder.glob("*.json")
    text = file.read_text()
    for at in (r"A\[\d+ \* i_out \+ i_in_1, ", r"\d+ \* j_out \+ j_in_1, ", r"B_packed\[j_out, "):  # tiles of any size
        text, count = re.subn(rf"({at})k\b", r"\1K - 1 - k", text)
        assert count
    file.write_text(text)
    return check_again(folder)


def test_an_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "examples/matmul.py:matmul", "-o", str(tmp_path)]) == 0
    assert "1 of 1 certificates hold" in capsys.readouterr().out
    (file,) = tmp_path.glob("*.json")
    assert check_again(tmp_path).returncode == 0
    assert turned(tmp_path).returncode == 0  # the order of this sum is free
    file.write_text(file.read_text().replace("range(0, K)", "range(1, K)"))
    again = check_again(tmp_path)
    assert again.returncode == 1 and "do not run the domain" in again.stdout and not again.stderr


def test_the_order_of_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checker, too, knows that it is fixed: a sum from its last product on is another one."""
    assert main(["certify", "examples/matmul.py:matmul", "--prove-order", "-o", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1 reduction in the order of the program" in said and "order proven: 1 reduction of floats" in said
    again = turned(tmp_path)
    assert again.returncode == 1 and "conflicts with" in again.stdout


def test_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = network(tmp_path / "m.onnx")
    assert main(["certify", str(model), "-o", str(tmp_path / "out"), "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert len(kernels) == 2 and all(k["holds"] for k in kernels)
    assert check_again(tmp_path / "out").returncode == 0


def test_loops_that_data_end_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.py").write_text(DYNAMIC)
    assert main(["certify", f"{tmp_path / 'rows.py'}:rows", "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "it has data-dependent loops" in said and "0 of 1 certificates hold" in said


def test_wrong_use_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = network(tmp_path / "m.onnx")
    assert main(["certify", str(model), "--schedule", "s.yaml"]) == 2
    assert "--schedule is for operators" in capsys.readouterr().err
