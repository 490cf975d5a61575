"""The memory planner against brute force and against seeded mistakes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyc.graph_driver.memory import (
    Lifetime,
    Placement,
    PlanError,
    aligned,
    check_placement,
    greedy_by_size,
    live_at_peak,
    lower_bound,
)

lifetimes = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=12)


def build(rows: list[tuple[int, int, int]]) -> list[Lifetime]:
    return [Lifetime(f"t{k}", size, first, first + length) for k, (size, first, length) in enumerate(rows)]


@settings(max_examples=200, deadline=None)
@given(lifetimes)
def test_plans_are_sound_and_not_below_the_bound(rows: list[tuple[int, int, int]]) -> None:
    tensors = build(rows)
    placement = greedy_by_size(tensors)
    check_placement(tensors, placement)
    bound = max(sum(aligned(t.size) for t in tensors if t.first <= step <= t.last) for step in range(20))
    assert lower_bound(tensors) == bound <= placement.peak <= sum(aligned(t.size) for t in tensors)
    assert sum(aligned(t.size) for t in live_at_peak(tensors)) == bound


@settings(max_examples=100, deadline=None)
@given(lifetimes)
def test_the_checker_sees_every_overlap(rows: list[tuple[int, int, int]]) -> None:
    tensors = build(rows)
    piled = Placement({t.name: 0 for t in tensors}, max(aligned(t.size) for t in tensors))
    if any(a.meets(b) for a, b in itertools.combinations(tensors, 2)):
        with pytest.raises(PlanError, match="overlap"):
            check_placement(tensors, piled)
    else:
        check_placement(tensors, piled)


def test_a_chain_needs_two_buffers() -> None:
    chain = [Lifetime(f"t{k}", 1000, k, k + 1) for k in range(50)]
    assert greedy_by_size(chain).peak == lower_bound(chain) == 2 * 1024


def test_the_checker_names_what_is_missing_or_misaligned() -> None:
    t = [Lifetime("a", 10, 0, 1)]
    with pytest.raises(PlanError, match="'a' has no place"):
        check_placement(t, Placement({}, 64))
    with pytest.raises(PlanError, match="does not fit"):
        check_placement(t, Placement({"a": 8}, 64))
    with pytest.raises(PlanError, match="does not fit"):
        check_placement(t, Placement({"a": 64}, 64))
