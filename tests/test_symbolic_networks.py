"""A real network compiled once for all sizes: a sentence encoder with its own weights."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from benchmarks import exports
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.all_sizes import AllSizes
from polyc.graph_driver.worker import kernels


@pytest.mark.long
def test_one_compile_of_minilm_is_right_at_fifty_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    path = exports.default_folder() / "minilm.onnx"
    if not path.exists():
        pytest.skip(f"not exported: python -m benchmarks.exports {path.parent} minilm")
    model = compile_model(path, threads=1)
    assert isinstance(model.running, AllSizes)
    assert model.report().host == [] and model.code.segments == 1
    assert any("<= 512 (Slice" in line for line in model.report().sizes)
    monkeypatch.setattr(kernels, "compile_all", None)  # from here on nothing is compiled
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(50)
    sizes = [(1, 1), (1, 512), *((int(rng.integers(1, 9)), int(rng.integers(1, 129))) for _ in range(48))]
    for batch, length in sizes:
        mask = np.ones((batch, length), np.int64)
        for row in mask:
            row[int(rng.integers(1, length + 1)) :] = 0
        feeds = {"ids": rng.integers(0, 30522, (batch, length)), "mask": mask, "kinds": np.zeros_like(mask)}
        model.for_inputs(feeds).arena[...] = 0xFF
        ours, theirs = model(feeds), session.run(None, feeds)
        for a, b in zip(ours.values(), theirs, strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= 1e-5 * np.abs(b).max(), (batch, length)
