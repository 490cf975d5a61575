"""`polyc tune`: the database, trials that are made up, and one small operator and model for real."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from examples.matmul import matmul
from polyc.emit import targets
from polyc.graph_driver.cli import main
from polyc.graph_driver.tuning.trial import Job, Times, run_apart, timed
from polyc.graph_driver.tuning.tune import CONFIRMED, tune_kernel
from polyc.graph_driver.worker import database
from polyc.graph_driver.worker import tuned as use
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.graph_driver.worker.database import Record
from polyc.poly import json_io
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.tuning.search import Outcome

HOST = targets.host()
SCOP = specialise(matmul.scop(), {"M": 24, "N": 20, "K": 28})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("POLYC_TUNED", raising=False)
    return tmp_path / "cache"


def made_up(ratio: float, noise: float = 0.0):
    """Trials in which every candidate is `ratio` times as fast as untuned."""

    def attempt(job: Job, limit: float) -> Times:
        made_up.calls += 1
        return Times((ratio, ratio * (1 + noise)), (1.0, 1.0 + noise))

    made_up.calls = 0
    return attempt


# ---- the database ------------------------------------------------------------------------------


def test_records_come_back(own_cache: Path) -> None:
    record = Record("p", "cpu", 2, {"a": Outcome(1.5, 0.1), "b": Outcome(None, None, "illegal")}, "a", "{}", 1.5, 2)
    database.store("k", record)
    assert database.find("k") == record and database.find("other") is None


@pytest.mark.parametrize("damage", ["cut", "changed", "other format", "list", "empty", "binary"])
def test_a_damaged_record_is_none_and_is_rebuilt(own_cache: Path, damage: str) -> None:
    tune_kernel(SCOP, HOST, 1, 3, attempt=made_up(1.5))
    (path,) = database.folder().glob("*.json")
    text = path.read_text()
    path.write_bytes({
        "cut": text[: len(text) // 2].encode(),
        "changed": text.replace('"gain": 1.5', '"gain": 9.5').encode(),
        "other format": text.replace('"version": 1', '"version": 7').encode(),
        "list": b"[1, 2]", "empty": b"", "binary": bytes(range(256)),
    }[damage])  # fmt: skip
    told = contextlib.nullcontext() if damage == "other format" else pytest.warns(RuntimeWarning, match="is damaged")
    with told:
        assert database.find(path.stem) is None
    with warnings.catch_warnings(), use.tuned(True):
        warnings.simplefilter("ignore")
        assert use.schedule_for(SCOP, HOST, 1) is None  # and nothing fails
        tune_kernel(SCOP, HOST, 1, 3, attempt=made_up(1.5))
    assert database.find(path.stem) is not None


def test_keys_are_structure_sizes_target_and_threads() -> None:
    other = specialise(matmul.scop(), {"M": 24, "N": 20, "K": 29})
    keys = {database.key_of(s, t, n) for s in (SCOP, other) for t in (HOST, targets.get("x86-64-v3")) for n in (1, 2)}
    assert len(keys) == 8
    elsewhere = json_io.loads(json_io.dumps(SCOP).replace("test_tuning.py", "moved.py"))
    assert database.key_of(elsewhere, HOST, 1) == database.key_of(SCOP, HOST, 1)


# ---- the search, with trials made up -------------------------------------------------------------


def test_a_gain_is_kept_and_a_loss_is_not() -> None:
    record = tune_kernel(SCOP, HOST, 1, 4, attempt=made_up(1.3))
    assert record.gain == pytest.approx(1.3) and record.trace and record.chosen and record.ran == 4
    slower = tune_kernel(SCOP, HOST, 2, 4, attempt=made_up(0.9))
    assert (slower.gain, slower.trace, slower.chosen) == (1.0, "", "")


def test_a_gain_within_the_noise_is_none() -> None:
    assert tune_kernel(SCOP, HOST, 1, 4, attempt=made_up(1.08, noise=0.1)).trace == ""
    assert tune_kernel(SCOP, HOST, 2, 4, attempt=made_up(1.01)).trace == ""


def test_a_gain_that_another_process_does_not_see_is_none() -> None:
    lucky = iter([1.5] * 4 + [1.5, 1.4, 0.9] * 3)  # the trials, then the last comparisons of the best three

    def attempt(job: Job, limit: float) -> Times:
        ratio = next(lucky)
        return Times((ratio,) * 2, (1.0,) * 2)

    record = tune_kernel(SCOP, HOST, 1, 4, attempt=attempt)
    assert (record.gain, record.trace) == (1.0, "") and next(lucky, None) is None


def test_an_interrupted_search_loses_nothing() -> None:
    good = made_up(1.2)

    def dying(job: Job, limit: float) -> Times:
        if made_up.calls == 3:
            raise KeyboardInterrupt
        return good(job, limit)

    with pytest.raises(KeyboardInterrupt):
        tune_kernel(SCOP, HOST, 1, 8, attempt=dying)
    record = database.find(database.key_of(SCOP, HOST, 1))
    assert record is not None and record.ran == 3 and record.gain is None
    before = made_up.calls
    done = tune_kernel(SCOP, HOST, 1, 8, attempt=good)
    assert done.ran == 8 and set(record.trials) < set(done.trials) and done.trace
    assert made_up.calls - before == 8 - 3 + CONFIRMED  # the rest, and the comparisons
    again = made_up.calls
    assert tune_kernel(SCOP, HOST, 1, 8, attempt=good) == done and made_up.calls == again


def test_what_an_earlier_version_found_stays_until_something_is_faster(own_cache: Path) -> None:
    """Its candidates had other names, and its schedules whole trees; nothing of it is lost."""
    start = Schedule.start(SCOP)
    trace = start.set_order(start.interchange("i", "j").tree).vectorize("i", 4).save()
    assert '"set_order"' in trace
    old = {
        "name": "matmul", "target": HOST.name, "threads": 1, "chosen": "cache 2", "trace": trace, "gain": 1.2,
        "compared": 2, "trials": {"cache 2": [1.2, 0.1, "", True], "cache 1/2, tile 4x3": [0.9, 0.1, "", True]},
    }  # fmt: skip
    text = json.dumps({"format": "polyc-tuning", "version": 1, "checksum": database._checksum(old), "record": old})
    database.folder().mkdir(parents=True)
    (database.folder() / f"{database.key_of(SCOP, HOST, 1)}.json").write_text(text)
    with use.tuned(True):
        used = use.schedule_for(SCOP, HOST, 1)
    assert used is not None and used.save() == trace
    record = tune_kernel(SCOP, HOST, 1, 3, attempt=made_up(1.3))
    assert (record.chosen, record.trace, record.gain) == ("cache 2", trace, pytest.approx(1.3))
    assert set(old["trials"]) < set(record.trials)

    def better(job: Job, limit: float) -> Times:
        return Times((1.1 if job.trace == trace else 1.5,) * 2, (1.0,) * 2)

    record = tune_kernel(SCOP, HOST, 1, 5, attempt=better)
    assert record.chosen != "cache 2" and record.gain == pytest.approx(1.5)


def test_timed_runs_by_turns() -> None:
    now, order = 0.0, []

    def taking(name: str, seconds: float):
        def run() -> None:
            nonlocal now
            now += seconds
            order.append(name)

        return run

    times = timed(taking("a", 2.0), taking("b", 1.0), 30.0, lambda: now)
    assert times.ratio == pytest.approx(2.0) and times.noise < 1e-9 and len(times.untuned) == 10
    assert order[2:6] == ["a", "b", "a", "b"]


# ---- for real ----------------------------------------------------------------------------------------


def test_a_trial_in_its_own_process() -> None:
    trace = automatic(SCOP, HOST, 1).save()
    times = run_apart(Job(json_io.dumps(SCOP), trace, HOST, 1, 0.01), 60.0)
    assert not times.error and 0.2 < times.ratio < 5.0
    late = run_apart(Job(json_io.dumps(SCOP), trace, HOST, 1, 0.01), 0.05)
    assert "took more than" in late.error
    broken = run_apart(Job(json_io.dumps(SCOP), '{"do": "nothing"}', HOST, 1, 0.01), 60.0)
    assert "no transformation 'nothing'" in broken.error


def test_an_operator_is_tuned_and_used_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    source = tmp_path / "small.py"
    source.write_text(
        "from polyc import dims, empty, f32, grid, op\nN = dims('N')\n"
        "@op\ndef doubled(X: f32[N]) -> f32[N]:\n    Y = empty((N,), f32)\n"
        "    for i in range(N):\n        Y[i] = X[i] + X[i]\n    return Y\n"
    )
    assert main(["tune", f"{source}:doubled", "--dim", "N=4000", "--trials", "2", "--threads", "1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (row,) = data["kernels"]
    assert row["kernel"] == "doubled" and 1 <= row["trials"] <= 2 and row["gain"] >= 1.0

    key = database.key_of(SCOP, HOST, 1)
    other = automatic(SCOP, targets.get("aarch64"), 1).save()  # any legal schedule that is not the usual one
    database.store(key, Record("product", "cpu", 1, {}, "other", other, 1.1))
    usual = compile_operator(SCOP, HOST, threads=1).source("loops")
    with use.tuned(True):
        changed = compile_operator(SCOP, HOST, threads=1)
    assert changed.source("loops") != usual
    monkeypatch.setenv("POLYC_TUNED", "1")
    assert compile_operator(SCOP, HOST, threads=1).source("loops") == changed.source("loops")
    with use.tuned(False):
        assert compile_operator(SCOP, HOST, threads=1).source("loops") == usual
    a, b = (np.random.default_rng().random(s).astype(np.float32) for s in ((24, 28), (28, 20)))
    np.testing.assert_allclose(changed(a, b), a @ b, rtol=1e-4)
    database.store(key, Record("product", "cpu", 1, {}, "old", '{"do": "nothing"}\n', 1.1))  # of another version
    assert compile_operator(SCOP, HOST, threads=1).source("loops") == usual


def test_a_model_is_tuned_kernel_by_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = np.random.default_rng().standard_normal((24, 17)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Relu", ["h"], ["y"])],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 17])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "mlp.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    assert main(["tune", str(path), "--trials", "1", "--threads", "1"]) == 0
    assert "MatMul+Relu" in capsys.readouterr().out
    (entry,) = database.folder().glob("*.json")
    record = database.find(entry.stem)
    assert record is not None and record.name
    x = np.random.default_rng().standard_normal((5, 24)).astype(np.float32)
    plain = polyc.compile_model(path, threads=1)
    groups = [g for g in plain.groups if g.text]
    trace = automatic(json_io.loads(groups[0].text), targets.get("aarch64"), 1).save()
    database.store(entry.stem, Record(record.name, "cpu", 1, {}, "other", trace, 1.1))
    tuned = polyc.compile_model(path, threads=1, tuned=True)
    assert tuned.code.images != plain.code.images
    assert polyc.compile_model(path, threads=1).code.images == plain.code.images  # only when asked
    np.testing.assert_allclose(tuned({"x": x})["y"], plain({"x": x})["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tune", "examples/matmul.py:matmul"], "needs values for M, K, N"),
        (["tune", "examples/matmul.py:matmul", "--trials", "0"], "--trials must be at least 1"),
        (["tune", "examples/matmul.py:matmul", "--limit", "0"], "--limit must be positive"),
        (["tune", "examples/matmul.py:matmul", "--target", "cuda"], "kernels are tuned by running them"),
        (["tune", "nothing.onnx"], "nothing.onnx"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) in (1, 2)
    message = capsys.readouterr().err
    assert says in message and message.count("\n") == 1
