"""Compiling on worker processes: results, failures, crashes and time limits of single kernels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tiny_models import model_of, network

from polyc.emit import cache as disk
from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.fusion import groups
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.passes import manager
from polyc.graph_driver.worker import jobs as worker
from polyc.graph_driver.worker import kernels, pool
from polyc.graph_driver.worker.jobs import Job
from polyc.poly.errors import BuildError
from polyc.poly.spans import recording


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The kernels of the small network, with an empty cache."""
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))
    graph = import_model(network(), dims={"N": 1})
    manager.run(graph)
    found = groups.form_groups(graph, groups.translate(graph, lookup))
    return [Job(g.text, f"k{n}", platform_of("cpu", 1)) for n, g in enumerate(found)]


def test_two_processes_give_the_same_code_as_this_one(jobs: list[Job]) -> None:
    steps: list[tuple[int, int]] = []
    results = kernels.compile_all(jobs, lambda done, total: steps.append((done, total)))
    assert steps[0] == (0, len(jobs)) and steps[-1] == (len(jobs), len(jobs))
    for job in jobs[:2]:
        found = results[job.symbol]
        assert isinstance(found, Compiled) and not found.cache_hit and found.seconds["schedule"] > 0
        here = worker.compile_job(job)
        assert (here.image, here.order) == (found.image, found.order)
    again = kernels.compile_all(jobs)
    assert all(isinstance(r, Compiled) and r.cache_hit for r in again.values())
    assert [r.image for r in again.values() if isinstance(r, Compiled)] == [
        r.image for r in (results[j.symbol] for j in jobs) if isinstance(r, Compiled)
    ]


@pytest.mark.parametrize("seconds", [2.0, *(pytest.param(0.5 * k, marks=pytest.mark.long) for k in range(1, 12))])
def test_a_killed_compilation_leaves_no_broken_cache(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache, out = tmp_path / "net.onnx", tmp_path / "cache", tmp_path / "out"
    model.write_bytes(network().SerializeToString())
    argv = [sys.executable, "-m", "polyc.graph_driver.cli", "compile", str(model), "-o", str(out), "--threads", "1"]
    environment = dict(os.environ) | {"POLYC_CACHE": str(cache)}
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
    time.sleep(seconds)
    process.kill()
    process.wait()
    monkeypatch.setenv("POLYC_CACHE", str(cache))
    for path in cache.glob("??/*"):
        if not path.name.startswith(".new-"):
            assert disk.get(path.stem, path.suffix) is not None, path
    assert not out.exists() or load(out).plan.steps
    model_again = compile_model(str(model), threads=1)
    feeds = {"x": np.random.default_rng().standard_normal((1, 3, 10, 12)).astype(np.float32)}
    assert np.isfinite(model_again(feeds)["y"]).all() and not [n for n in disk.notes() if "damaged" in n]


def test_a_failure_is_one_line_and_the_others_go_on(jobs: list[Job]) -> None:
    broken = [Job("{}", "bad1", platform_of("cpu", 1)), Job("no json", "bad2", platform_of("cpu", 1))]
    results = kernels.compile_all([*broken, *jobs[:3]])
    for job in broken:
        text = results[job.symbol]
        assert isinstance(text, str) and "\n" not in text
    assert all(isinstance(results[j.symbol], Compiled) for j in jobs[:3])


def test_a_dying_or_endless_process_costs_one_kernel(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    hear = pool.Pool._hear
    doomed: list[int] = []

    def hear_and_kill_the_first(self: pool.Pool) -> None:
        hear(self)
        if not doomed and (pids := [c.pid for c in self._compilers.values() if c.pid]):
            doomed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    monkeypatch.setattr(pool.Pool, "_hear", hear_and_kill_the_first)
    results = kernels.compile_all(jobs)
    died = [r for r in results.values() if isinstance(r, str)]
    assert died == ["the compiler process died (exit code -9)"] and len(results) == len(jobs)

    def hear_and_stop_all(self: pool.Pool) -> None:
        for pid in [c.pid for c in self._compilers.values() if c.pid]:
            with suppress(ProcessLookupError):  # killed already, since it took too long
                os.kill(pid, signal.SIGSTOP)
        hear(self)

    monkeypatch.setattr(pool.Pool, "_hear", hear_and_stop_all)
    monkeypatch.setenv("POLYC_TIME_LIMIT", "0.005")
    slow = kernels.compile_all([Job(j.text, j.symbol + "s", j.platform) for j in jobs[:3]])
    assert all(isinstance(r, str) and "took more than" in r for r in slow.values())


def test_processes_without_a_job_end_and_others_are_forked_later(jobs: list[Job]) -> None:
    shared = pool.Pool(2)
    try:
        shared.add(jobs[:2])
        first = shared.results(jobs[:2])
        before = shared.forked
        deadline = time.monotonic() + 60
        while shared._compilers and time.monotonic() < deadline:
            time.sleep(0.01)
        assert 1 <= before <= 2 and not shared._compilers
        shared.add(jobs)
        again = shared.results(jobs)
        assert before < shared.forked <= before + 2 and {s: again[s] for s in first} == first
        assert all(isinstance(r, Compiled) for r in again.values())
    finally:
        shared.close()


def test_when_the_process_that_forks_dies_another_one_does_the_rest(jobs: list[Job]) -> None:
    shared = pool.Pool(2)
    try:
        shared.add(jobs[:1])
        assert isinstance(shared.results(jobs[:1])[jobs[0].symbol], Compiled)
        first = shared._forking
        assert first is not None
        first.kill()
        while shared._control is not None:  # it is known to be dead, and nothing is to be done
            time.sleep(0.01)
        shared.add(jobs[:2])
        assert all(isinstance(r, Compiled) for r in shared.results(jobs[:2]).values())
        second = shared._forking
        assert second is not None and second.pid != first.pid
        second.kill()
        shared.add(jobs)
        lost = [r for r in shared.results(jobs).values() if isinstance(r, str)]
        assert set(lost) <= {"the compiler process died (exit code -9)"} and len(lost) < len(jobs) - 2
    finally:
        shared.close()


def test_a_compiler_that_cannot_be_imported_is_one_line(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "islpy.py").write_text("raise ImportError('broken by the test:\\nno isl here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    opened = _counted_starts(monkeypatch)
    for _ in range(2):  # the next ones that ask are told the same
        with pytest.raises(BuildError, match="cannot import polyc: ImportError: broken by the test: no isl here"):
            kernels.compile_all(jobs)
    assert len(opened) == 2 and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("where", ["ends at once", "cannot fork"])
def test_after_some_starts_in_vain_there_are_no_more(
    where: str, jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {"ends at once": "import os; os._exit(7)", "cannot fork": "import os; os.fork = lambda: os._exit(7)"}
    (tmp_path / "sitecustomize.py").write_text(ends[where])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    opened = _counted_starts(monkeypatch)
    with pytest.raises(BuildError, match=r"no process that compiles has started in 3 tries \(exit code 7\)"):
        kernels.compile_all(jobs)
    assert len(opened) == pool.STARTS


def test_a_forked_process_that_ends_before_its_first_job_is_not_forked_for_ever(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os; forked = os.fork; os.fork = lambda: forked() or os._exit(7)"  # the child ends with 7
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    opened = _counted_starts(monkeypatch)
    try:
        lost = {r for r in kernels.compile_all(jobs).values() if isinstance(r, str)}
    except BuildError as error:
        assert "no process that compiles has started in 3 tries (exit code 7)" in str(error)
    else:  # each of them got a job before it was known to be dead
        assert lost == {"the compiler process died (exit code 7)"}
    assert len(opened) == 1


def _counted_starts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A list that gets the time of each start of a process that forks."""
    opened: list[float] = []
    open_one = pool.Pool._open

    def counted(self: pool.Pool) -> None:
        opened.append(time.monotonic())
        open_one(self)

    monkeypatch.setattr(pool.Pool, "_open", counted)
    return opened


def test_compilers_start_as_soon_as_the_number_of_nodes_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYC_WORKERS", "2")
    with recording() as spans:
        compile_model(network(), threads=1, dims={"N": 1})
    named = {s.name: s for s in spans}
    assert named["import"].start < named["start of compilers"].start < named["import"].end
    with recording() as spans:
        compile_model(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, {"y": [4]}, {}), threads=1)
    assert "import" in {s.name for s in spans} and "start of compilers" not in {s.name for s in spans}


def test_the_program_keeps_a_core_until_it_waits(jobs: list[Job]) -> None:
    alone, both = pool.Pool(1), pool.Pool(2)
    for shared in (alone, both):
        shared.start()
    assert alone._forking is None and both._forking is not None
    both.add(jobs)
    deadline = time.monotonic() + 60
    while not both._results and time.monotonic() < deadline:
        time.sleep(0.01)
    assert both._results and both.forked == 1
    assert len(both.results(jobs)) == len(jobs) and both.forked <= 2
    for shared in (alone, both):
        shared.close()


def test_what_a_process_imports_is_there_before_it_is_forked(jobs: list[Job]) -> None:
    script = """
import signal, sys
from polyc.graph_driver.worker import forking
from polyc.graph_driver.worker.jobs import compile_job, decode
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as there
jobs = [decode(line) for line in sys.stdin.buffer]
forking.preload()
before = set(sys.modules)
for job in jobs:
    compile_job(job)
print(*sorted(m for m in set(sys.modules) - before if m.startswith(("polyc", "llvmlite", "islpy", "numpy"))))
"""
    lines = b"".join(map(worker.encode, jobs))
    done = subprocess.run([sys.executable, "-c", script], input=lines, capture_output=True, check=True)
    assert done.stdout.decode().split() == []


def test_a_group_that_cannot_be_compiled_is_split_then_sent_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.graph_driver.checking.check import compare, random_input
    from polyc.graph_driver.worker import memo

    expected = compile_model(network(), threads=1, dims={"N": 1})
    monkeypatch.setattr(memo, "find", lambda *_: None)
    monkeypatch.setattr(memo, "store", lambda *_: None)
    monkeypatch.setattr(
        kernels, "compile_all",
        lambda todo, progress=None: {j.symbol: "refused by the test" for j in todo},
    )  # fmt: skip
    found = compile_model(network(), threads=1, dims={"N": 1})
    assert {o for o, _, _ in found.report().host} >= {"Conv", "Gemm", "Softmax"}
    assert any("compiled in parts: refused by the test" in n for n in found.report().notes)
    assert all("no code: refused by the test" in reason for _, _, reason in found.report().host)
    feeds = {n: random_input(n, d, s, 0) for n, (d, s) in found.inputs.items()}
    assert max(d.relative for d in compare(found(feeds), expected(feeds))) < 1e-5
