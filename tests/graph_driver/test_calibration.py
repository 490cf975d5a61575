"""What the machine does: measured once, kept, measured again when the entry is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyc.emit import cache, targets
from polyc.graph_driver.bench import calibration
from polyc.scheduler.cost.model import LEVELS, Machine, nominal


def test_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_notes", [])  # of damage: other tests look for none
    made: list[Machine] = []

    def fake(target: object) -> Machine:
        made.append(nominal(targets.host()))
        return made[-1]

    monkeypatch.setattr(calibration, "_measured", fake)
    first = calibration.machine(targets.host())
    assert calibration.machine(targets.host()) == first and len(made) == 1
    calibration.machine(targets.host(), again=True)
    assert len(made) == 2
    (entry,) = tmp_path.glob("*/*.machine")
    entry.write_bytes(entry.read_bytes()[:-3] + b"???")
    assert calibration.machine(targets.host()) == first and len(made) == 3  # damaged: rebuilt


def test_figures_make_sense() -> None:
    m = calibration._measured(targets.host())
    assert 3e8 < m.hertz < 1e10 and 0.5 < m.operations < 20.0
    assert m.fma_flops >= 2.0  # at least a scalar multiply-add a cycle
    for rates in (m.read, m.write):
        assert all(rates[n] > 0.05 for n in LEVELS)
    assert m.read["l2"] > m.read["memory"] / 2  # a loaded machine measures with noise
    assert m.call > 10.0 and m.entry > 10.0
