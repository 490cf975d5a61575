"""`--dask` of the commands on a real Dask cluster of processes of this machine."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("distributed")

from clusters import Cluster, cluster

import polyc
from polyc.emit import targets
from polyc.graph_driver.cli import main
from polyc.graph_driver.farm.cores import owned
from polyc.graph_driver.farm.trials import tune_on
from polyc.graph_driver.tuning.kernels import Kernel
from polyc.graph_driver.tuning.trial import Job, Times
from polyc.graph_driver.tuning.tune import tune_kernel
from polyc.graph_driver.worker import database

TUNE = "tune examples/matmul.py:matmul --dim M=24 --dim N=32 --dim K=16 --threads 1 --json --trials".split()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("two")
    with cluster(folder, 2, POLYC_CACHE=str(folder / "cache")) as found:
        yield found


def test_an_operator_is_tuned(two: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TUNE, "2", "--dask", two.address]) == 0
    row = json.loads(capsys.readouterr().out)["kernels"][0]
    assert row["trials"] == 2 and row["failed"] == 0 and row["gain"] >= 1.0
    assert main([*TUNE, "2"]) == 0  # what the farm has found is known here: nothing runs again
    assert json.loads(capsys.readouterr().out)["kernels"][0] == row


def test_a_model_is_compiled(two: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "out"
    nodes = "  ".join(f"y{k} = Softmax <axis={k % 2}> (x{k})" for k in range(4))
    shapes = [(4 + k, 9) for k in range(4)]
    inputs = ", ".join(f"float[{m}, {n}] x{k}" for k, (m, n) in enumerate(shapes))
    outputs = inputs.replace(" x", " y")
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    onnx.save(onnx.parser.parse_model(text), path)
    assert main(["compile", str(path), "-o", str(out), "--dask", two.address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["output"] == str(out)
    feeds = {f"x{k}": np.random.default_rng(k).random(s, "f") for k, s in enumerate(shapes)}
    found = polyc.load(out)(feeds)
    for k in range(4):
        e = np.exp(feeds[f"x{k}"])
        np.testing.assert_allclose(found[f"y{k}"], e / e.sum(k % 2, keepdims=True), rtol=1e-5)
    assert list((two.folder / "cache").glob("??/*.kernel")), "compiled on the workers"


def test_models_are_timed(two: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rows = tmp_path / "m.onnx", tmp_path / "rows.json"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[8, 5] x) => (float[8, 5] y) { y = Softmax(x) }'
    onnx.save(onnx.parser.parse_model(text), path)
    words = ["bench", str(path), str(path), "--against", "", "--rounds", "2", "--json", str(rows)]
    assert main([*words, "--dask", two.address]) == 0
    assert [r["model"] for r in json.loads(rows.read_text())] == ["m.onnx"] * 2
    path.write_text("no model")
    assert main([*words, "--dask", two.address]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TUNE, "2", "--dask", "everywhere"]) == 2
    assert "--dask takes the address of a Dask scheduler" in capsys.readouterr().err


def truth(job: Job, limit: float = 0.0) -> Times:
    """A made-up time of a schedule, the same wherever it is asked for."""
    ratio = 0.8 + int.from_bytes(job.trace.encode()[-64:], "big") % 1000 / 1000
    return Times((ratio,) * 2, (1.0,) * 2)


class MadeUpFarm:
    """Answers at once, in another order than the work was given in; counts."""

    def __init__(self, slots: int, seed: int) -> None:
        self.work, self.most, self.given = [], slots, 0
        self.rng = np.random.default_rng(seed)

    def need(self, target: object) -> str:
        return ""

    def slots(self, needs: str) -> int:
        return self.most

    def give(self, work) -> None:
        self.given += 1
        self.work.append(work)
        assert len(self.work) <= self.most + 1

    def take(self, seconds: float):
        from dataclasses import asdict

        from polyc.graph_driver.farm.farm import Answer
        from polyc.graph_driver.tuning.trial import job_from

        work = self.work.pop(int(self.rng.integers(len(self.work))))
        return Answer(work, json.dumps(asdict(truth(job_from(json.loads(work.text)["job"])))), "", "here")

    def drop(self) -> None:
        self.work.clear()


@pytest.mark.parametrize("slots", [1, 5])
def test_a_farm_chooses_what_one_process_chooses(slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.matmul import matmul
    from polyc.poly.rewriting.specialise import specialise

    kernels = [Kernel(f"{m}", 1, specialise(matmul.scop(), {"M": m, "N": 16, "K": 12})) for m in (8, 12, 16, 20)]
    one = [tune_kernel(k.scop, targets.host(), 1, 6, attempt=truth) for k in kernels]
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "another"))
    farm = MadeUpFarm(slots, slots)
    assert tune_on(farm, kernels, targets.host(), 1, 6, 10.0) == one
    keys = [database.key_of(k.scop, targets.host(), 1) for k in kernels]
    assert [database.find(key) for key in keys] == one
    given = farm.given
    assert tune_on(farm, kernels, targets.host(), 1, 6, 10.0) == one and farm.given == given


def test_cores_are_owned_by_one_at_a_time(tmp_path: Path) -> None:
    count, most, inside = len(os.sched_getaffinity(0)), [0], []
    lock = threading.Lock()

    def one(k: int) -> None:
        with owned(1 + k % 2, tmp_path) as cores:
            with lock:
                inside.extend(cores)
                assert len(set(inside)) == len(inside) <= count
                most[0] = max(most[0], len(inside))
            threading.Event().wait(0.01)
            with lock:
                for core in cores:
                    inside.remove(core)

    threads = [threading.Thread(target=one, args=(k,)) for k in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert not inside and most[0] == count
