"""The page of a model in a browser, and the layout of its graph."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import checked, opened
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "graph_driver"))
from tiny_models import model_of, network, with_host_steps

from polyc.graph_driver import cli
from polyc.graph_driver.cli.models import document_of_model
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.html.layers import GAP, drawn
from polyc.graph_driver.options import CompileOptions


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("make", [network, with_host_steps], ids=["network", "host"])
def test_the_page_opens(make: Any, tmp_path: Path) -> None:
    path = saved(make(), tmp_path)
    assert cli.main(["inspect", str(path), "--html", str(tmp_path / "m.html")]) == 0
    checked(tmp_path / "m.html", tmp_path / "profile")


def test_the_document_says_what_the_plan_says(tmp_path: Path) -> None:
    path = saved(network(), tmp_path)
    dims = {"N": 1}
    data, plan = document_of_model(path, CompileOptions(dims=dims)), compile_model(str(path), threads=1, dims=dims).plan
    assert [s["label"] for s in data["steps"]] == [s.label for s in plan.steps]
    assert [s["args"] for s in data["steps"]] == [list(s.args) for s in plan.steps]
    assert (data["memory"]["peak"], data["memory"]["bound"]) == (plan.peak, plan.bound)
    assert max(data["memory"]["live"]) == plan.bound
    for line in data["lines"]:
        a, b = data["boxes"][line["from"]], data["boxes"][line["to"]]
        assert a["layer"] < b["layer"] and len(line["path"]) == b["layer"] - a["layer"] + 1


def test_a_compiled_directory_has_a_page(tmp_path: Path) -> None:
    compile_model(str(saved(network(), tmp_path)), threads=1).save(tmp_path / "net")
    data = document_of_model(tmp_path / "net", CompileOptions())
    assert data["steps"] and data["kernels"] == [] and data["lines"]
    assert not data["measured"]
    timed = document_of_model(tmp_path / "net", CompileOptions(), measure=True)
    assert timed["measured"] and all(0 < s["seconds"] < 10 for s in timed["steps"])
    json.dumps(timed)


def test_names_in_a_model_do_nothing(tmp_path: Path) -> None:
    bad = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"
    nodes = [helper.make_node("Relu", ["x"], [bad], name=bad), helper.make_node("Neg", [bad], ["y"], name="n")]
    path = saved(model_of(nodes, {"x": [2, 3]}, {"y": [2, 3]}, {}), tmp_path)
    assert cli.main(["inspect", str(path), "--html", str(tmp_path / "m.html")]) == 0
    checked(tmp_path / "m.html", tmp_path / "profile")
    dom = opened(tmp_path / "m.html", tmp_path / "profile", "why")
    assert dom.count("<script") == 2 and "<img" not in dom and "<title>model" in dom


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 14), st.data())
def test_boxes_never_touch_and_lines_follow_the_layers(count: int, data: Any) -> None:
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=25)) if pairs else []
    picture = drawn(count, edges)
    assert len(picture.at) == count and len(picture.lines) == len(edges)
    for k, (x, layer) in enumerate(picture.at):
        assert 0 <= x <= picture.width and 0 <= layer < picture.layers
        assert all(layer != other or abs(x - y) >= GAP for y, other in picture.at[k + 1 :])
    for (a, b), line in zip(edges, picture.lines, strict=True):
        assert line[0] == picture.at[a] and line[-1] == picture.at[b]
        assert [layer for _, layer in line] == list(range(picture.at[a][1], picture.at[b][1] + 1))
