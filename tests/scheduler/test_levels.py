"""Tile choices name the level that each tile is meant for; what is in a level fits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cases import Case, convolutions, gemms
from examples.matmul import matmul
from examples.polybench.jacobi_2d import jacobi_2d
from polyc.emit import targets
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import formed, optimise
from polyc.graph_driver.options import CompileOptions
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.levels import Tile, capacities, place
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

V3 = targets.get("x86-64-v3")
TARGETS = ("x86-64-v3", "x86-64-v4", "aarch64")


def tiles(s: Schedule, stage: str = "contraction") -> list[Mapping[str, Any]]:
    """Of the first decision of a stage that was carried out."""
    done = [d.figures["levels"] for d in s.decisions if d.stage == stage and d.outcome == "done"]
    assert done, [str(d) for d in s.decisions]
    return list(done[0])


def check(found: list[Mapping[str, Any]], target: Target) -> None:
    together: Counter[str] = Counter()
    for tile in found:
        assert tile["bytes"] > 0
        together[tile["level"]] += tile["bytes"]
    for level, size in together.items():
        most = capacities(target)[level]
        assert most is None or size <= most, (level, found)


def product(m: int, n: int, k: int) -> Scop:
    return specialise(matmul.scop(), {"M": m, "N": n, "K": k})


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("sizes", [(128, 768, 768), (1000, 1000, 1000), (64, 64, 64), (7, 300, 20000)])
def test_products(sizes: tuple[int, int, int], name: str) -> None:
    s = automatic(product(*sizes), targets.get(name), 1)
    found = tiles(s)
    check(found, targets.get(name))
    assert found[0] == {"array": "C", "bytes": found[0]["bytes"], "level": "registers"}
    assert {t["array"] for t in found} == {"A", "B", "C"}
    assert all(f"{t['array']} " in str(next(d for d in s.decisions if d.stage == "contraction")) for t in found)


QUICK = ("gemm 128x768x768", "conv 1x1/1 64->256 56x56", "conv 7x7/2 3->64 224x224", "depthwise 5x5/2 32->32 112x112")
CASES = [c if c.name in QUICK else pytest.param(c, marks=pytest.mark.long) for c in (*gemms(), *convolutions())]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operators_of_the_benchmark(case: Case) -> None:
    platform, options = platform_of(V3, 1), CompileOptions(threads=1)
    graph = import_with(case.model, platform, options)
    optimise(graph, platform, options)
    found = 0
    for g in formed(graph, platform, options)[1]:
        decisions = automatic(g.scop, V3, 1).decisions if g.scop is not None else ()
        for d in decisions:
            if d.stage in ("contraction", "product blocks") and d.outcome == "done" and "levels" in d.figures:
                check(d.figures["levels"], V3)
                found += bool(d.figures["levels"])
    assert found


def test_bytes_are_those_of_the_footprints() -> None:
    """Against isl: the row values and the panel of one register tile, and both operands in the whole."""
    s = automatic(product(96, 128, 200), V3, 1)
    inside = next(name for name in s.loops if name.endswith(".out") and name[0] == "i")
    counted = {a: s.footprint(a, at=inside).largest() * 4 for a in ("A", "B", "C")}
    accumulators, rows, panel, block, whole = tiles(s)
    assert (accumulators["bytes"], rows["bytes"], panel["bytes"]) == (counted["C"], counted["A"], counted["B"])
    assert (block["bytes"], whole["bytes"]) == (96 * 200 * 4, 200 * 128 * 4)


def test_blocks_of_sweeps() -> None:
    scop = specialise(jacobi_2d.scop(tsteps=20), {"N": 400})
    found = tiles(automatic(scop, V3, 1), "sweeps")
    check(found, V3)
    assert {(t["array"], t["level"]) for t in found} == {("A", "L2"), ("B", "L2")}


def test_what_has_no_room_goes_further_away() -> None:
    small = replace(V3, l1=1000, l2=5000, l3=8000)
    sizes = [("a", 600, "L1"), ("b", 600, "L1"), ("c", 5000, "L2"), ("d", 9000, "L1"), ("e", 400, "L1")]
    found = place([Tile(n, b, w) for n, b, w in sizes], small)
    assert [p.level for p in found] == ["L1", "L2", "L3", "memory", "L1"]
