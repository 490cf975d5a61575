"""Damaged models: each ends in success or in one clear line, never in a crash or a hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation import campaign, campaign_of_plans
from mutators import BYTES, EDITS, mutate
from tiny_models import network


def failures(seeds: range, folder: Path) -> dict[int, str]:
    """What went wrong, by seed."""
    return {
        s: f"{o.kind}: exit {o.code}: {o.error[-500:]}" for s, o in campaign(seeds, folder).items() if not o.acceptable
    }


@pytest.mark.parametrize("part", range(3))
def test_a_slice(part: int, tmp_path: Path) -> None:
    assert failures(range(10 * part, 10 * part + 10), tmp_path) == {}


def failures_of_plans(seeds: range, folder: Path) -> dict[int, str]:
    outcomes = campaign_of_plans(seeds, folder).items()
    return {s: f"{o.kind}: exit {o.code}: {o.error[-500:]}" for s, o in outcomes if not o.acceptable}


def test_a_slice_of_compiled_directories(tmp_path: Path) -> None:
    assert failures_of_plans(range(36), tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_compiled_directories(part: int, tmp_path: Path) -> None:
    assert failures_of_plans(range(5000 + 100 * part, 5100 + 100 * part), tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_models(part: int, tmp_path: Path) -> None:
    assert failures(range(10000 + 100 * part, 10100 + 100 * part), tmp_path) == {}


def test_every_kind_of_damage_is_dealt_and_repeatable() -> None:
    source = network().SerializeToString()
    dealt = [mutate(source, seed) for seed in range(400)]
    assert {kind for kind, _ in dealt} == {d.__name__ for d in (*BYTES, *EDITS)}
    assert dealt[:20] == [mutate(source, seed) for seed in range(20)]
    assert sum(data != source for _, data in dealt) > 390
