"""XLA and TVM as peers of the benchmarks, where they are installed: what they compute is what ONNX Runtime does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import onnx
import pytest

from benchmarks.cases import all_cases
from benchmarks.other_compilers import OTHERS, onnx_in_jax
from polyc.graph_driver.bench.peers import onnxruntime_runner
from polyc.poly.errors import BuildError

SMALL = 2e8  # operations of the cases that are compared
INSTALLED = {name: importlib.util.find_spec(name) is not None for name in OTHERS}


@pytest.mark.parametrize("name", OTHERS)
def test_results_are_onnx_runtimes(name: str) -> None:
    if not INSTALLED[name]:
        pytest.skip(f"{name} is not installed")
    cases = {c.model.graph.node[0].op_type: c for c in all_cases() if c.flops < SMALL and not c.double}
    assert {"Gemm", "Conv", "Softmax"} <= set(cases)
    for c in cases.values():
        try:
            found = OTHERS[name](c.model, c.inputs, 1)()
        except BuildError as refused:
            assert "is not translated" in str(refused)
            continue
        for got, wanted in zip(found, onnxruntime_runner(c.model, c.inputs)(), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max(), err_msg=c.name)


@pytest.mark.skipif(not INSTALLED["jax"], reason="jax is not installed")
def test_what_is_not_translated_is_named() -> None:
    node = onnx.helper.make_node("NonZero", ["x"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], []))
    with pytest.raises(BuildError, match="NonZero is not translated to JAX"):
        onnx_in_jax(model)


@pytest.mark.parametrize("name", OTHERS)
def test_a_peer_that_is_not_there_is_said(name: str) -> None:
    if INSTALLED[name]:
        pytest.skip(f"{name} is installed")
    command = [sys.executable, "-m", "benchmarks", "--peer", name, "--family", "memory"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and f"--peer {name}: it is not installed: pip install" in done.stderr
