"""Damaged models: each ends in success or in one clear line, never in a crash or a hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation import attack
from tiny_models import network, with_host_steps


def survivors(source: bytes, seeds: range, folder: Path) -> dict[int, str]:
    """What went wrong, by seed."""
    # What all children need is imported before they are forked.
    import graph_driver.cli_run
    from graph_driver.operators import lookup

    assert graph_driver.cli_run is not None and lookup("", "Conv") is not None
    outcomes = {seed: attack(source, folder, seed) for seed in seeds}
    return {s: f"exit {o.code}: {o.error[-500:]}" for s, o in outcomes.items() if not o.acceptable}


@pytest.mark.parametrize("part", range(3))
def test_a_slice(part: int, tmp_path: Path) -> None:
    source = (network if part < 2 else with_host_steps)().SerializeToString()
    assert survivors(source, range(10 * part, 10 * part + 10), tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_five_hundred(part: int, tmp_path: Path) -> None:
    source = (network if part % 3 else with_host_steps)().SerializeToString()
    assert survivors(source, range(1000 + 50 * part, 1050 + 50 * part), tmp_path) == {}
