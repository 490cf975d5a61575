"""A farm whose workers die and stop, whose scheduler goes away: every answer comes once, or one line says why not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from clusters import ROOT, Cluster, cluster, until
from pieces import broken, dying, full, refusing, slowly, squared

from polyc.emit import targets
from polyc.graph_driver.farm import farm as farms
from polyc.graph_driver.farm.farm import Answer, Farm, Work
from polyc.graph_driver.farm.opening import farm_at
from polyc.poly.errors import ArgumentError, BuildError

PATIENT = 60.0


def started(tmp_path: Path) -> int:
    """How often numbered work has been started."""
    log = tmp_path / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers that no test harms."""
    with cluster(tmp_path_factory.mktemp("two"), 2) as found:
        yield found


def answers(farm: Farm, count: int, seconds: float = PATIENT) -> list[Answer]:
    """So many answers."""
    found, end = [], time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} answers"
        if answer := farm.take(1.0):
            found.append(answer)
    return found


def numbered(farm: Farm, needs: str, tmp_path: Path, count: int, seconds: float) -> None:
    """Work that takes a while."""
    for k in range(count):
        text = json.dumps({"number": k, "seconds": seconds, "log": str(tmp_path / "log")})
        farm.give(Work(slowly, text, needs, 10.0, f"piece {k}"))


def test_answers_and_errors(two: Cluster) -> None:
    with farm_at(two.address) as farm:
        needs = farm.need(None)
        for k in range(20):
            farm.give(Work(squared, str(k), needs, 10.0, str(k)))
        got = answers(farm, 20)
        assert {a.error for a in got} == {""} and sorted(int(a.text) for a in got) == [k * k for k in range(20)]
        for function, said in ((refusing, "no x"), (broken, "ZeroDivisionError: x"), (full, "No space left")):
            farm.give(Work(function, "x", needs, 10.0, "x"))
            (answer,) = answers(farm, 1)
            assert said in answer.error and "\n" not in answer.error and answer.text == ""
        assert farm.open == 0 and farm.take(0.0) is None


def test_workers_by_cpu(two: Cluster, tmp_path: Path) -> None:
    here = targets.host()
    with farm_at(two.address) as farm:
        assert farm.slots(farm.need(here)) == 2
        start = time.monotonic()
        with pytest.raises(BuildError, match="no worker at .* has this polyc and a apple-m1 CPU: .*not apple-m1"):
            farm.need(targets.get("apple-m1"))
        assert time.monotonic() - start < 10.0
        two.worker("old", POLYC_HOST="haswell")
        try:
            until(lambda: two.registered("old"))
            assert farm.slots(farm.need(here)) == 2
            assert "its CPU is haswell" in farm.notes[-1]
            needs = farm.need(targets.get("haswell"))
            assert farm.slots(needs) == 1 and farm.slots(farm.need(None)) == 3
        finally:
            two.kill("old")


def test_addresses() -> None:
    for where in ("here", "local:0", "local:", "http//x", ""):
        with pytest.raises(ArgumentError, match="--dask takes"), farm_at(where):
            pass
    start = time.monotonic()
    with (
        pytest.raises(BuildError, match="no Dask scheduler answers at tcp://127.0.0.1:9"),
        farm_at("tcp://127.0.0.1:9"),
    ):
        pass
    assert time.monotonic() - start < 10.0


def test_a_scheduler_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farms, "ANSWER", 1.0)
    with cluster(tmp_path, 0) as found:
        with farm_at(found.address) as farm, pytest.raises(BuildError, match="has no workers"):
            farm.need(None)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("sitecustomize.py", "import polyc.graph_driver.worker.jobs as j; j.fingerprint = lambda: 'x'", "another one"),
        ("polyc.py", "", "cannot run this polyc .ModuleNotFoundError"),
    ],
)
def test_another_version_is_refused(tmp_path: Path, file: str, text: str, said: str) -> None:
    """A worker whose polyc is another one, and one that has none."""
    (tmp_path / file).write_text(text)
    path = f"{tmp_path}:{ROOT}:{Path(__file__).parent}"
    with cluster(tmp_path, 1, afresh=True, PYTHONPATH=path) as found, farm_at(found.address) as farm:
        start = time.monotonic()
        with pytest.raises(BuildError, match=said) as refused:
            farm.need(None)
        assert "\n" not in str(refused.value) and time.monotonic() - start < 10.0


def test_workers_that_die(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as found, farm_at(found.address) as farm:
        needs = farm.need(None)
        numbered(farm, needs, tmp_path, 6, 0.5)
        farm.give(Work(dying, json.dumps({"log": str(tmp_path / "tries"), "times": 1}), needs, 10.0, "deadly"))
        until(lambda: started(tmp_path) > 0)
        found.kill("w0")
        found.worker("w3")  # one that came later is used, too
        got = sorted(a.text for a in answers(farm, 7))
        assert got == ["0", "1", "16", "25", "4", "9", "lived"]


def test_all_workers_die_and_others_come(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as found, farm_at(found.address) as farm:
        needs = farm.need(None)
        numbered(farm, needs, tmp_path, 2, 0.5)
        until(lambda: started(tmp_path) > 0)
        found.kill("w0")
        assert farm.take(1.5) is None
        found.worker("w1")
        assert sorted(a.text for a in answers(farm, 2)) == ["0", "1"]


def test_what_kills_every_worker_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farms, "MOST_COPIES", 1)
    with cluster(tmp_path, 3) as found, farm_at(found.address) as farm:
        needs = farm.need(None)
        farm.give(Work(dying, json.dumps({"log": str(tmp_path / "tries"), "times": 99}), needs, 10.0, "deadly"))
        with pytest.raises(BuildError, match="deadly: 1 attempts on workers .* died or never answered"):
            answers(farm, 1)


def test_a_worker_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farms, "SILENT", 3.0)
    with cluster(tmp_path, 2) as found, farm_at(found.address) as farm:
        needs = farm.need(None)
        numbered(farm, needs, tmp_path, 4, 0.3)
        until(lambda: started(tmp_path) >= 2)
        found.pause("w0")
        assert sorted(a.text for a in answers(farm, 4)) == ["0", "1", "4", "9"]


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_lost_scheduler(tmp_path: Path, how: str) -> None:
    with cluster(tmp_path, 1) as found, farm_at(found.address) as farm:
        needs = farm.need(None)
        numbered(farm, needs, tmp_path, 3, 0.2)
        answers(farm, 1)
        getattr(found, how)("scheduler")
        start = time.monotonic()
        with pytest.raises(BuildError, match="does not answer any more .*goes on from there") as lost:
            answers(farm, 3)
        assert time.monotonic() - start < 10.0 and "\n" not in str(lost.value)


def test_no_worker_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farms, "WORKERLESS", 2.0)
    with cluster(tmp_path, 1) as found, farm_at(found.address) as farm:
        needs = farm.need(None)
        numbered(farm, needs, tmp_path, 1, 0.5)
        found.kill("w0")
        with pytest.raises(BuildError, match="no worker that suits is left"):
            answers(farm, 1)
