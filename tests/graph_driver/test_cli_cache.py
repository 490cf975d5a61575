"""`polyc cache`: what is there, what it takes, clearing, looking for damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_models import new, programs
from tiny_models import network

from polyc.emit import cache
from polyc.graph_driver import cli
from polyc.graph_driver.known import entries

__all__ = ["programs"]  # a fixture


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert cli.main(["cache", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_listed_and_counted(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "list") == [] and said(capsys)["programs"]["bytes"] == 0
    for rows in (1, 2):
        new(network(), dims={"N": rows})
    new(network(), symbolic=False)
    found = said(capsys, "list")
    assert [p["name"] for p in found] == ["tiny"] * 3
    assert all(p["target"] == "cpu" and p["seconds"] >= 0 and p["unused_hours"] < 1 for p in found)
    size = said(capsys, "size")
    assert size["programs"]["number"] == 3 and 0 < size["programs"]["bytes"] <= sum(p["bytes"] for p in found)
    assert size["kernels"]["number"] == len(cache.files()) > 0
    for action in ("list", "size"):
        assert cli.main(["cache", action]) == 0
        assert "tiny" in (out := capsys.readouterr().out) or action == "size" and "finished programs" in out


def test_damage_is_found_and_removed(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new(network(), dims={"N": 2})
    new(network(), symbolic=False)
    assert said(capsys, "verify")["damaged"] == []
    (folder,) = (f for f in entries.entries() if (f / "code.bin").exists())
    kernel = cache.files()[0]
    for path in (folder / "code.bin", kernel):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert len(said(capsys, "verify", code=1)["damaged"]) == 2
    assert not folder.exists() and not kernel.exists()
    assert said(capsys, "verify")["damaged"] == []


def test_cleared(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = new(network(), dims={"N": 2})
    given = {"x": np.ones((2, 3, 10, 12), np.float32)}
    expected = model(given)["y"]
    kernels = len(cache.files())
    assert said(capsys, "clear", "--only", "programs")["bytes"] > 0
    assert entries.entries() == [] and len(cache.files()) == kernels
    np.testing.assert_array_equal(model(given)["y"], expected)  # what is loaded stays
    new(network(), dims={"N": 2})
    assert said(capsys, "clear", "--only", "kernels")["bytes"] > 0
    assert len(entries.entries()) == 1 and cache.files() == []
    assert said(capsys, "clear")["bytes"] > 0
    assert entries.entries() == [] and not list((programs.parent / "weights").glob("*"))


def test_refused(programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["cache", "list", "--only", "kernels"]) == 2
    monkeypatch.setenv("POLYC_CACHE_SIZE", "a lot")
    assert cli.main(["cache"]) == 1
    assert "POLYC_CACHE_SIZE is 'a lot'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 4 << 30), ("0", 0), ("100", 100), ("2k", 2048), ("1.5M", 3 << 19), ("8G", 8 << 30), ("1TiB", 1 << 40)],
)
def test_sizes_of_the_cache(monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    monkeypatch.setenv("POLYC_CACHE_SIZE", text)
    assert cache.limit_bytes() == expected
