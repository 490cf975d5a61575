"""`polyc inspect MODEL --stage stats`: exact work before and after the passes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.cli import main
from polyc.graph_driver.cli.models import formed_of, optimised
from polyc.graph_driver.explaining.counted import Statistics, statistics
from polyc.graph_driver.options import CompileOptions

LIGHT = Path(os.path.dirname(onnx.__file__), "backend/test/data/light")


def chain(path: Path) -> Path:
    """Two pointwise nodes over 6 x 7 elements: 42 sums and 42 maxima."""
    nodes = [helper.make_node("Add", ["x", "x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [6, 7]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def of(path: Path, **options: Any) -> Statistics:
    chosen = CompileOptions(threads=1, **options)
    platform = platform_of(chosen.target, chosen.threads)
    graph, _ = optimised(path, chosen, platform)
    return statistics("", len(graph.nodes), formed_of(graph, platform, chosen)[0])


def test_numbers_that_anybody_can_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = chain(tmp_path / "m.onnx")
    apart = of(path, passes=(), fuse=False, layouts="as_given")
    assert (apart.kernels, apart.flops, apart.bytes) == (2, 84, 2 * 2 * 42 * 4)
    joined = of(path)
    assert (joined.kernels, joined.flops, joined.bytes, joined.uncounted) == (1, 84, 2 * 42 * 4, 0)
    assert main(["inspect", str(path), "--stage", "stats"]) == 0
    head, given, compiled = capsys.readouterr().out.splitlines()
    assert "bytes moved" in head and given.split()[-4:-1] == ["0", "84", "672"] and "336" in compiled


def test_less_moves_in_a_network() -> None:
    path = LIGHT / "light_squeezenet.onnx"
    before, after = of(path, passes=(), fuse=False, layouts="as_given"), of(path, exact=True)
    assert after.flops == before.flops and 2 * after.bytes < before.bytes


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda p: p.stem)
def test_less_moves_in_every_light_model(path: Path) -> None:
    assert of(path, exact=True).bytes < of(path, passes=(), fuse=False, layouts="as_given").bytes
