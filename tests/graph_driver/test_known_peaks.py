"""Arena sizes of real networks against the figures known for greedy by size."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from graph_driver import memory
from graph_driver.groups import form_groups, translate
from graph_driver.importer import import_model
from graph_driver.operators import lookup
from graph_driver.passes import manager
from graph_driver.plan import Plan, build_plan

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def plan_of(name: str, fuse: bool) -> Plan:
    graph = import_model(LIGHT / f"light_{name}.onnx")
    manager.run(graph)
    found = form_groups(graph, translate(graph, lookup), fuse)
    order = {g.key: ("k", tuple(a.name for a in g.scop.arrays.values() if a.kind != "local")) for g in found if g.scop}
    return build_plan(graph, found, order)


@pytest.mark.parametrize(
    ("name", "greedy", "best"), [("resnet50", 9_633_792, 9_633_792), ("densenet121", 8_830_976, 8_429_568)]
)
def test_operator_by_operator(name: str, greedy: int, best: int) -> None:
    plan = plan_of(name, fuse=False)
    assert plan.peaks["greedy-by-size"] == greedy and plan.peak == plan.bound == best
    offsets = {t.name: plan.slots[t.name].place.offset for t in plan.lifetimes}
    memory.check_placement(plan.lifetimes, memory.Placement(offsets, best))


def test_fusion_needs_less() -> None:
    assert plan_of("resnet50", fuse=True).peak < 9_633_792
