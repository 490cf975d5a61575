"""A kernel that cannot be compiled with its images in blocks: the model is compiled as it is, and says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tiny_models import model_of

from polyc.emit import targets
from polyc.graph_driver import cli
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.layouts.formats import blocked
from polyc.poly.expr import const_int
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Node, Sequence
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies import auto

BLOCK = blocked(targets.host(), 32).block


def two_convolutions() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Two kernels with an image of full blocks in between, which have a sequence of statements each. Sizes are new
    each time: nothing comes from the cache."""
    rng = np.random.default_rng()
    size, channels = [int(n) for n in rng.integers(3, 40, 2)], int(rng.integers(3, 200))
    weights = {
        "a": rng.standard_normal((BLOCK, channels, 1, 1)).astype(np.float32),
        "b": rng.standard_normal((5, BLOCK, 1, 1)).astype(np.float32),
    }
    nodes = [helper.make_node("Conv", ["x", "a"], ["s"]), helper.make_node("Conv", ["s", "b"], ["y"])]
    shape = [1, channels, *size]
    return model_of(nodes, {"x": shape}, {"y": None}, weights), {"x": rng.standard_normal(shape, np.float32)}


def last_first(node: Node) -> Node:
    """The tree with the parts of its sequences in reverse order."""
    if isinstance(node, Sequence):
        return Sequence(node.filters[::-1])
    assert isinstance(node, Band)
    return replace(node, child=last_first(node.child))


@pytest.fixture
def illegal_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels with images in blocks get a schedule that adds up before it initialises, which legality refuses."""
    automatic = auto.automatic

    def schedule(scop: Scop, *rest: Any, **more: Any) -> Schedule:
        images = [a for n in (*scop.args, *scop.results) if len((a := scop.arrays[n]).shape) == 4]
        if any(a.shape[-1] == const_int(BLOCK) for a in images):
            return Schedule(scop, scop.tree).set_order(last_first(scop.tree))
        return automatic(scop, *rest, **more)

    monkeypatch.setattr(auto, "automatic", schedule)


@pytest.mark.usefixtures("illegal_in_blocks")
def test_the_model_is_compiled_as_it_is_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, feeds = two_convolutions()
    onnx.save(model, tmp_path / "net.onnx")
    explain = ["explain", str(tmp_path / "net.onnx"), "--layouts", "blocked", "--threads", "1"]
    assert cli.main(explain) == 0
    assert "layout    s: " in capsys.readouterr().out  # not compiled yet: nothing is refused

    compiled = compile_model(model, threads=1, layouts="blocked")
    (want,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(compiled(feeds)["y"], want, rtol=1e-4, atol=1e-4)
    assert compiled.plan.slots["s"].layout is None and not compiled.plan.host_steps
    report = compiled.report()
    (note,) = [n for n in report.notes if n.startswith("all tensors are stored as the model has them: Conv at ")]
    assert "internal error" not in note  # legality's own refusal
    assert note in str(report)
    assert len(report.decisions) == len(set(report.decisions))

    again = compile_model(model, threads=1, layouts="blocked")
    assert again.report().cache_hits and note in again.report().notes

    for arguments in (explain, [*explain, "--measure"]):
        assert cli.main(arguments) == 0
        out = capsys.readouterr().out
        assert f"note      {note}" in out and "layout    s: " not in out


def test_nothing_is_noted_where_nothing_is_refused() -> None:
    model, _ = two_convolutions()
    compiled = compile_model(model, threads=1, layouts="blocked")
    assert compiled.plan.slots["s"].layout is not None
    assert not [n for n in compiled.report().notes if "stored as the model" in n]
