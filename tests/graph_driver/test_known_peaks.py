"""Arena sizes of real networks against the figures known for greedy by size."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from polyc.graph_driver import memory
from polyc.graph_driver.fusion.groups import form_groups, translate
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.passes import manager
from polyc.graph_driver.planning.build import build_plan
from polyc.graph_driver.planning.overwriting import overwrite
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.verify_plan import check_plan

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def plan_of(name: str, fuse: bool, share: bool = False) -> Plan:
    """The plan without machine code; `share` adds results in place and concatenations without copies."""
    graph = import_model(LIGHT / f"light_{name}.onnx")
    manager.run(graph, [p for p in manager.DEFAULT if share or p.name != "parts"])
    found = form_groups(graph, translate(graph, lookup), fuse)
    if share:
        found = overwrite(graph, found)
    return build_plan(graph, found, {g.key: ("k", g.arrays, ()) for g in found if g.key})


@pytest.mark.parametrize(
    ("name", "greedy", "best"), [("resnet50", 9_633_792, 9_633_792), ("densenet121", 8_830_976, 8_429_568)]
)
def test_operator_by_operator(name: str, greedy: int, best: int) -> None:
    plan = plan_of(name, fuse=False)
    assert plan.peaks["greedy-by-size"] == greedy and plan.peak == plan.bound == best
    offsets = {t.name: plan.slots[t.name].place.offset for t in plan.lifetimes}
    memory.check_placement(plan.lifetimes, memory.Placement(offsets, best))


def below_the_bound(name: str) -> None:
    """Strictly less than what is alive at once operator by operator, and little fragmentation."""
    apart, shared = plan_of(name, fuse=False), plan_of(name, fuse=True, share=True)
    assert shared.peak < apart.bound and shared.fragmentation <= 0.06
    check_plan(shared, {"k"}, 0)


@pytest.mark.parametrize("name", ["squeezenet", "resnet50"])
def test_sharing_needs_less_than_the_bound(name: str) -> None:
    below_the_bound(name)


@pytest.mark.long
@pytest.mark.parametrize("name", ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "shufflenet", "vgg19",
                                  "zfnet512"])  # fmt: skip
def test_sharing_needs_less_everywhere(name: str) -> None:
    below_the_bound(name)
