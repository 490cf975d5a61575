"""A model's kernels and an operator's files as MLIR, from the command line; a real MLIR build takes and runs them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import mlir_build
import numpy as np
import onnx
import pytest
from mlir_build import needs_mlir
from tiny_models import network

from polyc.emit.compile import build
from polyc.emit.interpreter.interp import run
from polyc.emit.kernel import NATIVE, Report
from polyc.emit.loop_ir.loops import Buffer, Function
from polyc.emit.targets import host
from polyc.graph_driver.cli import main
from polyc.graph_driver.cli.mlir import model_kernels
from polyc.graph_driver.options import CompileOptions


def native(fn: Function, arrays: dict[str, np.ndarray]) -> None:
    """Run a kernel as LLVM's machine code, whose bits are the interpreter's."""
    address = build(fn, host(), "llvm", Report())
    pointers = (ctypes.c_void_p * len(arrays))(*[arrays[b.name].ctypes.data for b in fn.buffers])
    NATIVE(address.address)(pointers, (ctypes.c_int64 * 1)(), None)


@needs_mlir
@pytest.mark.parametrize(
    "judge", [native, pytest.param(lambda fn, arrays: run(fn, arrays, {}), marks=pytest.mark.long)]
)
def test_all_kernels_of_a_model(tmp_path: Path, judge: Any) -> None:
    onnx.save(network(), tmp_path / "net.onnx")
    kernels = model_kernels(tmp_path / "net.onnx", CompileOptions(dims={"N": 2}, threads=2))
    assert len(kernels) >= 4
    made = mlir_build.compiled([fn for _, fn in kernels])
    for seed, (_, fn) in enumerate(kernels):
        arrays = {b.name: some(b, seed) for b in fn.buffers}
        expected = {n: a.copy() for n, a in arrays.items()}
        judge(fn, expected)
        mlir_build.run(made, fn, arrays)
        for n, a in arrays.items():
            assert a.tobytes() == expected[n].tobytes(), (fn.name, n)


def some(b: Buffer, seed: int) -> np.ndarray:
    """Moderate numbers for a buffer of known shape."""
    shape = [int(n.value) for n in b.shape]
    return np.random.default_rng(seed).uniform(0.1, 1.0, shape).astype(b.dtype.np)


def test_files_and_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(network(), tmp_path / "net.onnx")
    matmul = str(Path(__file__).parents[2] / "examples" / "matmul.py") + ":matmul"
    out = tmp_path / "out"
    assert main(["build", matmul, "--size", "M=64", "--emit", "mlir", "-o", str(out)]) == 0
    text = (out / "matmul.mlir").read_text()
    assert "func.func @matmul(%A: memref<64x?xf32>, %B: memref<?x?xf32>, %C: memref<64x?xf32>, %K: index" in text
    assert main(["compile", str(tmp_path / "net.onnx"), "--dim", "N=2", "--emit", "mlir", "--threads", "1"]) == 0
    whole = (tmp_path / "net.mlir").read_text()
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "net.onnx"), "--dim", "N=2", "--stage", "mlir", "--threads", "1"]) == 0
    stage = capsys.readouterr().out
    assert whole.count("func.func @polyc_") == stage.count("func.func @") >= 4 and "// kernel 0: Conv" in whole
    assert main(["compile", str(tmp_path / "net.onnx"), "--emit", "mlir", "--target", "sm_80"]) == 2
    assert "--emit mlir is for CPUs" in capsys.readouterr().err
    assert main(["inspect", matmul, "--stage", "mlir", "--threads", "1"]) == 0
    if mlir_build.tool("mlir-opt"):
        for made in (text, whole, capsys.readouterr().out):
            mlir_build.verified(made)
