"""Tuning on a real Dask cluster of processes of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from polyc.graph_driver.cli import main


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))


def test_an_operator_on_two_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "tune examples/matmul.py:matmul --dim M=24 --dim N=32 --dim K=16 --threads 1 --json --trials".split()
    assert main([*words, "2", "--dask", "local:2"]) == 0
    row = json.loads(capsys.readouterr().out)["kernels"][0]
    assert row["trials"] == 2 and row["failed"] == 0 and row["gain"] >= 1.0
    assert main([*words, "2"]) == 0  # what the farm has found is known here: nothing runs again
    assert json.loads(capsys.readouterr().out)["kernels"][0] == row
