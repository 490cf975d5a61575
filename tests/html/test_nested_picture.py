"""The picture of a whole program, to zoom into: each instance once, inside the loops that it belongs to, in order."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from operators import scop_of, skewed_jacobi, tiled_matmul

from polyc.graph_driver.cli import main
from polyc.graph_driver.html.nested_picture import concrete, nested_picture
from polyc.poly.enumeration import at_sizes, instances, timeline
from polyc.poly.errors import ArgumentError
from polyc.poly.scop import Scop
from polyc.poly.tree import Node

SVG = "{http://www.w3.org/2000/svg}"
Sides = tuple[float, float, float, float]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        two (float[2,3] x) => (float[2,2] y) { a = MatMul(x, w)  b = Relu(a)  y = Softmax(b) }""")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((3, 2), np.float32), "w"))
    path = tmp_path / "two.onnx"
    onnx.save(proto, path)
    return path


def sides(rect: ElementTree.Element) -> Sides:
    x, y, w, h = (float(rect.get(name, "nan")) for name in ("x", "y", "width", "height"))
    return x, y, x + w, y + h


def inside(a: Sides, b: Sides) -> bool:
    slack = 1e-3 * (b[2] - b[0])
    return a[0] >= b[0] - slack and a[1] >= b[1] - slack and a[2] <= b[2] + slack and a[3] <= b[3] + slack


def drawn(text: str) -> list[tuple[str, Sides]]:
    """Each instance of a picture with its rectangle, in the order of the file."""
    found = []
    for group in ElementTree.fromstring(text).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        found.append((group.get("data-at", ""), sides(rect)))
    return found


def check(scop: Scop, tree: Node, text: str) -> None:
    """Each instance once, in the order of the schedule; no two overlap, and all have an area."""
    points = instances(scop)
    names = [f"{s}[{', '.join(map(str, at))}]" for s, at in timeline(tree, points).in_order()]
    found = drawn(text)
    assert [name for name, _ in found] == names
    boxes = [box for _, box in found]
    assert all(b[2] > b[0] and b[3] > b[1] for b in boxes)
    for k, a in enumerate(boxes):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in boxes[k + 1 :])


@pytest.mark.parametrize(
    "schedule",
    [tiled_matmul(), skewed_jacobi(), scop_of("trmm").schedule(), scop_of("lu").schedule()],
    ids=["tiles", "skewed tiles", "triangle", "lu"],
)
def test_any_schedule_of_an_operator(schedule: Any) -> None:
    sizes = dict(zip(schedule.scop.params, (5, 7, 4)))
    scop, tree = at_sizes(schedule.scop, schedule.tree, sizes)
    assert len(instances(scop)) > 15
    check(scop, tree, nested_picture(scop, tree, "operator"))


def test_subscripts_are_numbers() -> None:
    scop = scop_of("trmm")
    found = {concrete(s, range(3, 3 + len(s.iters))) for s in scop.statements.values()}
    assert found == {"B[3, 4] = B[3, 4] + A[5, 3] * B[5, 4]", "B[3, 4] = B[3, 4] * alpha"}


def test_too_many_instances_and_unknown_sizes_are_refused() -> None:
    scop = scop_of("matmul")
    with pytest.raises(ArgumentError, match="sizes that are numbers"):
        nested_picture(scop, scop.tree, "x")
    scop, tree = at_sizes(scop, scop.tree, {"M": 30, "N": 30, "K": 30})
    with pytest.raises(ArgumentError, match="27,900 instances are too many for one picture"):
        nested_picture(scop, tree, "x")


def test_a_model_from_its_nodes_to_each_instance(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model.with_suffix(".svg")
    assert main(["inspect", str(model), "--svg", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    said = ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]
    nodes = [t for t in said if re.fullmatch(r"\w+ '\w+'", t)]
    assert nodes == ["MatMul 'a'", "Relu 'b'", "Softmax 'y'"]
    assert len(list(root.iter(f"{SVG}path"))) == 2 and {"a", "b"} <= set(said)  # what is passed on
    found = dict(drawn(text))
    products = [name for name in found if re.fullmatch(r"S1\[\d, \d, \d\]", name)]
    assert len(products) == 2 * 2 * 3
    frames = [sides(r) for r in root.iter(f"{SVG}rect") if r.get("class") != "point"]
    assert all(any(inside(box, frame) for frame in frames) for box in found.values())
