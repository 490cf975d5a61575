"""Clumsy uses of the commands and of the Python interface: one line that says what is wrong, and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from compared import node
from tiny_models import model_of

import polyc
from examples.matmul import matmul
from polyc.graph_driver.cli import main

MATMUL = f"{Path(__file__).parents[2] / 'examples' / 'matmul.py'}:matmul"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = {"w": np.ones((8, 4), np.float32)}
    onnx.save(model_of([node("MatMul", ["x", "w"], "y")], {"x": [3, 8]}, {"y": None}, weights), tmp_path / "m.onnx")
    (tmp_path / "text.onnx").write_text("hello\n", encoding="utf-8")
    (tmp_path / "leaves.py").write_text("import sys; sys.exit(3)\n", encoding="utf-8")
    (tmp_path / "raises.py").write_text("raise RuntimeError('boom\\nand more')\n", encoding="utf-8")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("line, code, said", [
    ("run m.onnx --register text.onnx", 2, "text.onnx is no Python file: its name must end in .py"),
    ("run m.onnx --check --tolerance -1", 2, "--tolerance is a number of at least 0, not -1"),
    ("run m.onnx --check --tolerance nan", 2, "--tolerance is a number of at least 0, not nan"),
    ("compile m.onnx --memory-limit -5 -o out", 1, "the memory limit is a number of bytes, not -5"),
    ("inspect m.onnx --kernel 7", 2, "--kernel goes with a stage of kernels"),
    ("inspect m.onnx --kernel 7 --stage schedule", 2, "no kernel '7'"),
    ("bench m.onnx --against tensorrt", 2, "no peer 'tensorrt' reads ONNX files here; known: onnxruntime"),
    (f"explain {MATMUL} --dim M=99999999999999999999", 1, "M = 99999999999999999999 needs more than 64 bits"),
    (f"bisect {MATMUL} text.onnx", 1, "line 1 of the trace is not a step: hello"),
    ("explain leaves.py:f", 2, "leaves.py does not run: SystemExit: 3"),
    ("explain raises.py:f", 2, "raises.py does not run: RuntimeError: boom\n"),
])  # fmt: skip
def test_commands(
    line: str, code: int, said: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    assert main(line.split()) == code
    errors = capsys.readouterr().err
    assert said in errors and errors.count("\n") == 1 and "internal error" not in errors


def schedule() -> polyc.Schedule:
    return matmul.scop().schedule()


@pytest.mark.parametrize("use, said", [
    (lambda: matmul.compile(threads=0), "threads are a number of at least 1, not 0"),
    (lambda: matmul.compile(threads="two"), "threads are a number of at least 1, not 'two'"),
    (lambda: matmul.compile(schedule="x"), "schedule= takes a Schedule"),
    (lambda: schedule().tile(["i"], [10**30]), "the block size of loop 'i' must be at most 2147483647"),
    (lambda: schedule().misses(-4, M=3, N=3, K=3), "a cache of -4 bytes does not hold a line of 64"),
    (lambda: schedule().misses(4096, 0, M=3, N=3, K=3), "the size of a cache line must be a positive integer"),
    (lambda: polyc.compile_model(None), "a model is a path, a ModelProto or its bytes, not None"),
])  # fmt: skip
def test_python(use: Callable[[], Any], said: str) -> None:
    with pytest.raises(polyc.PolycError, match=said):
        use()


def test_models(model: Path) -> None:
    def refused(said: str, use: Callable[[], Any]) -> None:
        with pytest.raises(polyc.PolycError, match=said):
            use()

    refused("dims is a dict by name, not 3", lambda: polyc.compile_model(model, dims=3))
    refused("the memory limit is a number of bytes, not -1", lambda: polyc.compile_model(model, memory_limit=-1))
    compiled, x = polyc.compile_model(model, threads=1), np.ones((3, 8), np.float32)
    refused("inputs are a dict of arrays by name", lambda: compiled(x))
    refused("the model has no output 'q'; it has 'y'", lambda: compiled({"x": x}, out={"q": x}))
    weights = {"w": np.ones((4, 5), np.float32)}
    wrong = model_of([node("Add", ["x", "w"], "y")], {"x": [2, 3]}, {"y": None}, weights)
    refused(r"Add 'y': .*operands 'x' \[2, 3\], 'w' \[4, 5\]", lambda: polyc.compile_model(wrong))
