"""What a target says about graphs: which passes run for it, and how many operands its operators take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from test_graph_passes import evaluate
from tiny_models import model_of, network

from polyc.emit.gpu import targets as gpu_targets
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.passes import manager
from polyc.graph_driver.passes.manager import PASSES
from polyc.poly.errors import ArgumentError, BuildError


def names(target: Any, **options: Any) -> list[str]:
    return [p.name for p in CompileOptions(target, **options).pipeline(platform_of(target))]


def test_generic_runs_general_passes_and_a_file_enables_more(tmp_path: Path) -> None:
    board = tmp_path / "board.toml"
    general = [p.name for p in PASSES if p.default and not p.specific]
    assert sorted(names("generic")) == sorted(general)
    board.write_text('base = "generic"\npasses = "general, winograd, fast-math"\n')
    assert sorted(names(board)) == sorted([*general, "winograd", "fast-math"])
    assert sorted(names(board, exact=True)) == sorted({*general, "winograd", "fast-math"} & {*names("cpu", exact=True)})
    board.write_text('base = "generic"\npasses = "general,specific"\n')
    assert names(board) == names(platform_of("cpu").machine.isa)
    board.write_text('base = "generic"\npasses = "general,nonsense"\n')
    with pytest.raises(ArgumentError, match="the target's 'passes' are general, specific and names of .* 'nonsense'"):
        names(board)
    x = np.random.default_rng().standard_normal((2, 3, 10, 12)).astype(np.float32)
    model = compile_model(network(), target="generic", threads=1, dims={"N": 2})
    for name, value in evaluate(import_model(network(), {"N": 2}), {"x": x}).items():
        np.testing.assert_allclose(model({"x": x})[name], value, rtol=1e-4, atol=1e-5)


def operands(kind: str, count: int, shapes: list[list[Any]], **attrs: Any) -> Any:
    nodes = [
        helper.make_node(kind, [f"x{k}" for k in range(count)], ["s"], **attrs),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    return model_of(nodes, {f"x{k}": shapes[k % len(shapes)] for k in range(count)}, {"y": None}, {}, opset=18)


@pytest.mark.parametrize("gpu", [False, True])
def test_operators_of_too_many_operands_become_trees(tmp_path: Path, gpu: bool) -> None:
    path = tmp_path / "narrow.toml"
    base = (gpu_targets.DATA / "gpu" / "sm_80.toml").read_text() if gpu else 'base = "x86-64"\n'
    path.write_text(base + "\nmax_concat_inputs = 2\nmax_sum_inputs = 3\n")
    rng = np.random.default_rng()
    for kind, count, shapes, attrs, made in [
        ("Concat", 8, [[2, 3], [2, 1]], {"axis": -1}, ["Concat"] * 7),
        ("Concat", 5, [[2, 3]], {"axis": 0}, ["Concat"] * 4),
        ("Sum", 7, [[4, 5], [5], [1, 1]], {}, ["Sum"] * 3),
        ("Max", 4, [[4, 5]], {}, ["Max"] * 2),
        ("Mean", 5, [[4, 5], [4, 1]], {}, ["Sum", "Sum", "Mul"]),
        ("Concat", 2, [[2, 3]], {"axis": 0}, ["Concat"]),
    ]:
        proto = operands(kind, count, shapes, **attrs)
        plain, limited = import_model(proto), import_model(proto)
        platform = platform_of(path)
        records = manager.run(limited, CompileOptions(path).pipeline(platform), platform.host)
        assert any(r.name == "operand-limits" for r in records)
        manager.run(plain, CompileOptions("x86-64").pipeline(platform_of("x86-64")), platform_of("x86-64").host)
        assert [n.op_type for n in plain.nodes if n.op_type not in ("Neg", "Whole")] in ([kind], [])
        kinds = [n.op_type for n in limited.nodes if n.op_type != "Neg"]
        assert [("Concat" if k == "Whole" else k) for k in kinds] == made
        feeds = {n: rng.standard_normal(limited.tensors[n].shape).astype(np.float32) for n in limited.inputs}
        most = {"Concat": 2}.get(kind, 3)
        assert all(len(n.inputs) <= most for n in limited.nodes)
        reference, again = import_model(proto), evaluate(limited, feeds)
        tolerance = 1e-6 if kind == "Mean" else 0  # the evaluator divides, kernels multiply by the same constant
        for name, value in evaluate(reference, feeds).items():
            np.testing.assert_allclose(again[name], value, rtol=tolerance)
        if not gpu and kind in ("Concat", "Mean") and count == 5:
            model, other = compile_model(proto, target=path, threads=1), compile_model(proto, "x86-64", threads=1)
            for name, value in other(feeds).items():
                np.testing.assert_array_equal(model(feeds)[name], value)


def test_without_a_limit_nothing_changes_and_wrong_limits_are_one_line(tmp_path: Path) -> None:
    assert "operand-limits" not in names("cpu") and "operand-limits" not in names("x86-64")
    path = tmp_path / "odd.toml"
    path.write_text('base = "x86-64"\nmax_concat_inputs = 1\n')
    with pytest.raises(BuildError, match="'max_concat_inputs' is a number from 2"):
        platform_of(path)


def test_sizes_that_runs_decide() -> None:
    proto = operands("Concat", 5, [["N", 3]], axis=1)
    graph = import_model(proto, symbolic=True)
    manager.run(graph, [manager.within_limits({"Concat": 2})])
    assert [n.op_type for n in graph.nodes].count("Concat") == 4
    assert str(graph.tensors["y"].shape) == "(N, 15)"
