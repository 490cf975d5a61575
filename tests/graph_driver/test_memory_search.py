"""The planners against brute force over all orders, and the hard instances of minimalloc."""

import csv
import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.graph_driver.memory import (
    PLANNERS,
    Lifetime,
    Placement,
    Shape,
    check_placement,
    exact,
    fit,
    lower_bound,
    plan_arena,
    plan_shapes,
)

ROWS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=6)


def tensors_of(rows: list[tuple[int, int, int]]) -> list[Lifetime]:
    return [Lifetime(f"t{k}", size, first, first + length) for k, (size, first, length) in enumerate(rows)]


def best_peak(tensors: list[Lifetime]) -> int:
    """The optimum: some order of placing each tensor as low as it goes above those placed before reaches it."""
    best = sum(t.size for t in tensors)
    for order in itertools.permutations(tensors):
        tops: dict[str, int] = {}
        done: list[Lifetime] = []
        for t in order:
            tops[t.name] = t.size + max((tops[o.name] for o in done if o.meets(t)), default=0)
            done.append(t)
        best = min(best, max(tops.values()))
    return best


@settings(max_examples=120, deadline=None)
@given(ROWS)
def test_the_search_finds_the_optimum_and_proves_it(rows: list[tuple[int, int, int]]) -> None:
    tensors = tensors_of(rows)
    best = best_peak(tensors)
    placement = exact(tensors, alignment=1, bisections=30)
    check_placement(tensors, placement, 1)
    assert placement.peak == best
    found, final = fit(tensors, best, alignment=1)
    assert final and found is not None and found.peak <= best
    if best > lower_bound(tensors, 1):
        assert fit(tensors, best - 1, alignment=1) == (None, True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 12), st.integers(0, 5)), max_size=14))
def test_every_planner_is_sound(rows: list[tuple[int, int, int]]) -> None:
    tensors = tensors_of(rows)
    for planner in PLANNERS.values():
        placement = planner(tensors)
        check_placement(tensors, placement)
        assert placement.peak >= lower_bound(tensors)
    planned = plan_arena(tensors)
    assert planned.placement.peak == min(planned.peaks.values())


def test_the_search_beats_greedy_where_greedy_is_not_optimal() -> None:
    rows = [(2, 0, 1), (3, 1, 2), (2, 2, 2), (4, 0, 0), (3, 4, 0), (1, 1, 3)]
    tensors = [Lifetime(t.name, t.size * 64, t.first, t.last) for t in tensors_of(rows)]
    assert exact(tensors).peak == lower_bound(tensors) <= PLANNERS["greedy-by-size"](tensors).peak


def hard_instance(letter: str) -> list[Lifetime] | None:
    """One of google/minimalloc's challenging instances, if the folder with them is at hand."""
    folder = Path(os.environ.get("POLYC_MINIMALLOC", Path(__file__).resolve().parents[3] / "shared/minimalloc"))
    path = folder / f"{letter}.1048576.csv"
    if not path.is_file():
        return None
    with path.open() as file:
        rows = [tuple(map(int, r)) for r in list(csv.reader(file))[1:]]
    return [Lifetime(str(k), size, lower, upper - 1) for k, lower, upper, size in rows]


def solve(letter: str) -> None:
    tensors = hard_instance(letter)
    if tensors is None:
        pytest.skip("the instances of minimalloc are not at hand")
    placement, _ = fit(tensors, 1 << 20, 10**9, 60.0, 1024)
    assert placement is not None
    check_placement(tensors, Placement(placement.offsets, 1 << 20), 1024)


@pytest.mark.parametrize("letter", ["A", "C"])
def test_hard_instances(letter: str) -> None:
    solve(letter)


@pytest.mark.long
@pytest.mark.parametrize("letter", ["B", "D", "E", "F"])
def test_the_hardest_instances(letter: str) -> None:
    solve(letter)


RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None)
@given(st.lists(RUNS, min_size=1, max_size=6))
def test_memories_that_are_alive_part_by_part(rows: list[list[tuple[int, int, int]]]) -> None:
    shapes = []
    for k, runs in enumerate(rows):
        at, found = 0, []
        for n, (blocks, first, length) in enumerate(runs):
            found.append((at, Lifetime(f"s{k}+{n}", 64 * blocks, first, first + length)))
            at += 64 * blocks
        shapes.append(Shape(f"s{k}", tuple(found)))
    planned = plan_shapes(shapes)
    parts = [t for s in shapes for _, t in s.runs]
    offsets = {t.name: planned.placement.offsets[s.name] + at for s in shapes for at, t in s.runs}
    check_placement(parts, Placement(offsets, planned.placement.peak))
    assert lower_bound(parts) <= planned.placement.peak <= sum(s.hull.size for s in shapes)
