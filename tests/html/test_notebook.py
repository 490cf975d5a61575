"""What a notebook shows: well-formed, the whole tree of the page, no script, no name of a file unescaped."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from operators import skewed_jacobi, tiled_matmul

import polyc
from polyc.graph_driver.html.tree import tree_data
from polyc.graph_driver.worker.compile_operator import compile_operator

BAD = "</style><script>alert(1)</script><img src=x onerror='a' & \"b\">"


def parsed(value: Any) -> ElementTree.Element:
    """The output as a tree of elements, none of which acts or loads."""
    text = value._repr_html_()
    root = ElementTree.fromstring(text)
    tags = {e.tag for e in root.iter()}
    assert tags <= set("div style p b code span ul ol li details summary pre svg path g rect text title".split()), tags
    assert not any(name.startswith("on") or "http" in v for e in root.iter() for name, v in e.attrib.items())
    assert len(text) < 200_000
    return root


def shown(root: ElementTree.Element) -> str:
    return "".join(root.itertext())


def names_in(node: dict[str, Any]) -> list[str]:
    own = [m["name"] for m in node.get("members", ())] + [s["name"] for s in node.get("statements", ()) if "text" in s]
    return own + [n for child in node["children"] for n in names_in(child)]


@pytest.mark.parametrize("make", [tiled_matmul, skewed_jacobi])
def test_schedules_scops_and_kernels(make: Any) -> None:
    schedule = make()
    root = parsed(schedule)
    drawn = [e.text for e in root.iter() if e.tag == "b" or e.get("class") == "stmtname"]
    data = tree_data(schedule.tree, schedule.scop)
    assert [n for n in names_in(data) if n not in drawn] == []
    text = shown(root)
    assert all(s.name in text for s in schedule.trace) and repr(schedule)[1:-1] in text
    assert all(f"{a.kind} {a.name}: {a.dtype}" in shown(parsed(schedule.scop)) for a in schedule.scop.arrays.values())
    kernel = compile_operator(schedule.scop, schedule=schedule, threads=1)
    assert all(n in shown(parsed(kernel)) for n in names_in(data))
    assert "sequence" in shown(parsed(skewed_jacobi())) and "promote A[" in shown(parsed(tiled_matmul()))


def test_kinds_of_loops_have_badges() -> None:
    badges = {e.get("class"): e.text for e in parsed(tiled_matmul()).iter() if "badge" in (e.get("class") or "")}
    assert badges["badge b-parallel"] == "parallel" and badges["badge b-vector"] == "vector 4"
    assert {"badge b-free", "badge b-buffer"} <= set(badges)


def hostile_model() -> onnx.ModelProto:
    node = helper.make_node("Add", ["x", BAD], [f"y{BAD}"], name=BAD)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])
    y = helper.make_tensor_value_info(f"y{BAD}", TensorProto.FLOAT, None)
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), BAD)
    graph = helper.make_graph([node], BAD, [x], [y], [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_nothing_in_a_file_acts() -> None:
    model = polyc.compile_model(hostile_model(), threads=1)
    root = parsed(model)
    text = shown(root)
    assert "Add" in text and "input x" in text and "Report" in text
    assert all("script" not in e.tag for e in root.iter())
    noted = tiled_matmul().noted(BAD)
    assert BAD in shown(parsed(noted))


def test_models_say_what_they_are() -> None:
    model = polyc.compile_model(hostile_model(), threads=1)
    assert repr(model).startswith("<Model ") and "x[2, n]" in repr(model)
    per_call = polyc.compile_model(hostile_model(), threads=1, symbolic=False)
    parsed(per_call)  # before its first call there is nothing to draw
    per_call({"x": np.ones((2, 3), np.float32)})
    assert "Add" in shown(parsed(per_call))
