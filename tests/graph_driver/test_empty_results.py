"""Steps in Python whose results have no elements: they have a place in the plan like all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.from_source import compile_built
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.python_calls import DOMAIN
from polyc.graph_driver.options import CompileOptions
from polyc.poly.dtypes import f32


class Halves:
    """The first rows of an operand and the others."""

    reason = "a test"

    def __init__(self, rows: int, name: str) -> None:
        self.rows, self.name = rows, name

    def __call__(self, values: Sequence[Any], captures: Mapping[str, Any]) -> list[Any]:
        return [values[0][: self.rows].copy(), values[0][self.rows :].copy()]

    def __repr__(self) -> str:
        return f"Halves({self.rows}, {self.name})"


@pytest.mark.parametrize("rows", [0, 2, 4])
def test_empty_results_of_steps_in_python(rows: int) -> None:
    graph = Graph("halves", {"": 22}, ["x"], ["y", "c"], {}, [])
    shapes = {"x": (4, 3), "a": (rows, 3), "b": (4 - rows, 3), "c": (rows, 3), "d": (4 - rows, 3), "y": (4 - rows, 3)}
    graph.tensors.update({n: Tensor(n, f32, shape) for n, shape in shapes.items()})
    graph.nodes += [
        Node("halves", "Halves", ["x"], ["a", "b"], {"call": Halves(rows, "one")}, DOMAIN),
        Node("unread", "Halves", ["x"], ["c", "d"], {"call": Halves(rows, "two")}, DOMAIN),
        Node("y", "Sqrt", ["b"], ["y"], {}),
    ]
    options = CompileOptions(threads=1)
    model = compile_built(graph, platform_of(options.target, options.threads), options)
    x = np.random.default_rng(0).random((4, 3), np.float32)
    found = model({"x": x})
    np.testing.assert_allclose(found["y"], np.sqrt(x[rows:]), rtol=1e-6)
    np.testing.assert_array_equal(found["c"], x[:rows])
