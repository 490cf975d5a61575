"""The flow of values where nothing is searched for, beside isl's search for the last write."""

from __future__ import annotations

import random

import pytest
import random_scops

from polyc.frontend_dsl.library import winograd
from polyc.graph_driver.worker.compile_operator import auto_schedule
from polyc.poly import dependences
from polyc.poly.access import accesses
from polyc.poly.dependences import Kind, flow, value_flow_among
from polyc.poly.dtypes import f32
from polyc.poly.scop import Scop

PARTS = 8
KINDS: tuple[Kind, ...] = ("RAW", "WAR", "WAW")


def compared(scop: Scop, kind: Kind) -> int:
    """Compare both ways array by array; how many arrays had a flow that was not searched for."""
    count = 0
    for array in scop.arrays:
        chosen = [a for a in accesses(scop) if a.array == array]
        sources, sinks = dependences._ends(chosen, kind)
        if sources and sinks and all(map(dependences._one_element, sinks if kind == "WAR" else sources)):
            by_isl = dependences._anti_flow if kind == "WAR" else dependences._searched
            searched = by_isl(sources, sinks, dependences._times(scop))
            found = value_flow_among(scop, chosen, kind)
            assert found.is_equal(searched), f"{kind} through {array} of\n{scop}"
            count += not found.is_empty()
    return count


@pytest.mark.parametrize("part", range(PARTS))
def test_flow_of_single_elements_is_what_isl_finds(part: int) -> None:
    """Guards, remainders, reductions, loops that data end and updates in place: whatever `random_scop` makes."""
    count = 0
    for seed in range(part * 100, part * 100 + 100):
        scop = random_scops.random_scop(random.Random(9000 + seed))
        count += sum(compared(scop, kind) for kind in KINDS)
    assert count >= 50, "too few programs whose flow is not searched for"


def test_the_flow_of_winograds_transforms_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """isl's search took two thirds of the time of their schedules."""

    def searched(*_: object) -> None:
        raise AssertionError("isl searches for the last writes")

    monkeypatch.setattr(dependences, "_searched", searched)
    for scop in (
        winograd.make_input_transform(f32, 1, 8, (10, 10), (1, 1), (10, 10), 4, 9).scop(),
        winograd.make_output_transform(f32, 1, 8, (10, 10), 4, 10).scop(),
    ):
        auto_schedule(scop, "x86-64-v3")
        flow(scop)
