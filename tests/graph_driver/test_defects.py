"""A bug of one operator's builder costs a node its kernel, and is said."""

from __future__ import annotations

from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.graph.defects import DefectWarning
from polyc.graph_driver.operators import lookup


def test_a_failing_builder_warns_and_the_host_does_its_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(context: Any) -> Any:
        raise TypeError("no such thing")

    def patched(domain: str, kind: str) -> Any:
        return broken if kind == "Erf" else lookup(domain, kind)

    monkeypatch.setattr("polyc.graph_driver.compiling.joining.lookup", patched)
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 5]) for n in "xy")
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Erf", ["r"], ["y"], "e")]
    source = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    for _ in range(2):  # the second time the model comes from the cache
        with pytest.warns(DefectWarning, match="'e' runs on the host: internal error of the library: TypeError: no"):
            model = compile_model(source, threads=1)
    given = np.random.default_rng().standard_normal((3, 5)).astype(np.float32)
    expected = np.vectorize(erf)(np.maximum(given, 0))
    np.testing.assert_allclose(model.run({"x": given})["y"], expected, rtol=1e-5)
