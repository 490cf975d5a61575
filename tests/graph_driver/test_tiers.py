"""Tiers of compiling: `full` is what is made unasked; the others answer sooner, and right at every moment."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_prologues import random_model
from tiny_models import model_of, network, recurrent

import polyc
from polyc.graph_driver.cli.command import parser
from polyc.graph_driver.options import TIERS, CompileOptions
from polyc.graph_driver.running.model import Model
from polyc.graph_driver.running.per_call import PerCall
from polyc.graph_driver.tiers import background
from polyc.graph_driver.tiers.progressive import Progressive
from polyc.poly.errors import ArgumentError, BoundsError, BuildError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))


def running_of(model: Model) -> Progressive:
    assert isinstance(model.running, Progressive)
    return model.running


def feeds(model: Model, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(shape).astype(np.float32) for n, (_, shape) in model.inputs.items()}


def close(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-4, atol=2e-5)


def gone(pid: int) -> bool:
    """Whether a process has ended (perhaps unnoticed by its parent)."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def wait_until(true: Any) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it does not come")


def test_full_is_the_default_everywhere() -> None:
    assert inspect.signature(polyc.compile_model).parameters["tier"].default == "full"
    assert CompileOptions().tier == "full"
    for command in ("compile", "run"):
        assert parser().parse_args([command, "m.onnx"]).tier == "full"
    model = polyc.compile_model(network(), dims={"N": 1}, threads=1)
    assert model.report().tier == "full" and "tier " not in str(model.report())
    assert model.wait() and not isinstance(model.running, Progressive)
    model.close()  # there is nothing to stop


def test_there_are_three_tiers() -> None:
    assert TIERS == ("full", "fast", "progressive")
    with pytest.raises(ArgumentError, match="no tier 'quick'; tiers are full, fast, progressive"):
        polyc.compile_model(network(), tier="quick")


def test_kernels_of_the_fast_tier_are_never_taken_for_full_ones() -> None:
    soon = polyc.compile_model(network(), dims={"N": 2}, threads=1, tier="fast")
    full = polyc.compile_model(network(), dims={"N": 2}, threads=1)
    assert soon.report().tier == "fast" and full.report().tier == "full"
    assert full.report().cache_hits == 0
    again = polyc.compile_model(network(), dims={"N": 2}, threads=1, tier="fast")
    assert again.report().cache_hits == again.report().distinct > 0
    x = feeds(full, 0)
    close(soon(x), full(x))


def test_the_first_program_answers_and_the_full_one_takes_its_place(tmp_path: Path) -> None:
    full = polyc.compile_model(network(), dims={"N": 2}, threads=1)
    model = polyc.compile_model(network(), dims={"N": 2}, threads=1, tier="progressive")
    report = model.report()
    first = running_of(model).now
    assert first.report().kernels == 0 and not first.report().host
    assert any(line.startswith("NumPy runs ") for line in report.tiers) or model.wait(0)
    for seed in range(3):
        close(first(feeds(model, seed)), full(feeds(model, seed)))
    assert model.wait() and running_of(model).now is not first
    assert report is model.report() and report.tier == "full" and report.kernels == full.report().kernels
    assert len(report.tiers) == 1 and f"{report.kernels} kernels of the full program since" in report.tiers[0]
    x = feeds(model, 7)
    assert model(x)["y"].tobytes() == full(x)["y"].tobytes()
    assert model.run(x, "mixed", ["conv*"])["y"].tobytes() == full(x)["y"].tobytes()
    model.save(tmp_path / "net.polyc")
    full.save(tmp_path / "full.polyc")
    for path in (tmp_path / "full.polyc").iterdir():
        assert path.read_bytes() == (tmp_path / "net.polyc" / path.name).read_bytes(), path.name


def test_threads_that_call_during_the_swap_have_right_results() -> None:
    full = polyc.compile_model(network(), dims={"N": 3}, threads=1)
    model = polyc.compile_model(network(), dims={"N": 3}, threads=2, tier="progressive")
    running, wrong, seen = running_of(model), [], set()
    done = threading.Event()

    def call(k: int) -> None:
        seed, after = 1000 * k, 0
        while after < 20:
            after += done.is_set()
            seed += 1
            x = feeds(full, seed)
            seen.add(id(running.now))
            got = model(x) if seed % 3 else model.run(x, "mixed", ["conv1"])
            try:
                close(got, full(x))
            except AssertionError as error:
                wrong.append(str(error))
                return

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    swapped = model.wait()
    done.set()
    for t in threads:
        t.join()
    assert swapped and not wrong and len(seen) == 2


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_through_all_tiers(seed: int) -> None:
    proto = random_model(seed)
    models = [polyc.compile_model(proto, threads=1, tier=tier) for tier in TIERS]
    for again in (False, True):
        for k in range(3):
            x = feeds(models[0], k)
            want = models[0](x)
            for model in models[1:]:
                close(model(x), want)
        assert again or models[2].wait()


@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_of_either_meaning(opset: int) -> None:
    for attrs in ({}, {"axis": 1}):
        nodes = [helper.make_node("Softmax", ["x"], ["y"], **attrs)]
        proto = model_of(nodes, {"x": [2, 3, 4]}, {"y": [2, 3, 4]}, {}, opset)
        full, model = (polyc.compile_model(proto, threads=1, tier=t) for t in ("full", "progressive"))
        close(running_of(model).now(feeds(full, 1)), full(feeds(full, 1)))
        model.close()


def test_a_first_program_starts_no_compilers_and_loads_no_scheduler() -> None:
    more = """
from polyc.graph_driver.worker.pool import Pool
print(sorted(m for m in sys.modules if m.startswith("polyc.scheduler.")), flush=True)
"""
    before = """
import sys
import polyc.graph_driver.worker.pool as pool
def start(self): raise AssertionError("compilers are started")
pool.Pool._begin = start
"""
    done = subprocess.run([sys.executable, "-c", before + SCRIPT + more], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[1] == "[]", done.stderr


def test_operators_that_numpy_does_not_do_have_kernels_in_the_first_program() -> None:
    """Resize and HardSigmoid of a model whose other operators NumPy has."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Resize", ["r", "", "s"], ["y"], mode="linear"),
    ]
    proto = model_of(nodes, {"x": [1, 2, 4, 4]}, {"y": [1, 2, 8, 8]}, {"s": np.array([1, 1, 2, 2], np.float32)})
    full, model = (polyc.compile_model(proto, threads=1, tier=t) for t in ("full", "progressive"))
    first = running_of(model).now
    assert first.report().kernels == 1
    close(first(feeds(full, 1)), full(feeds(full, 1)))
    model.close()


def test_sizes_stay_symbolic_in_both_programs() -> None:
    full = polyc.compile_model(network(), threads=1)
    model = polyc.compile_model(network(), threads=1, tier="progressive")
    for _ in range(2):
        for n in (1, 2, 5):
            x = {"x": np.random.default_rng(n).standard_normal((n, 3, 10, 12)).astype(np.float32)}
            close(model(x), full(x))
        assert model.wait()
    assert model.specialise({"N": 4}).report().target == "cpu"
    assert running_of(model).formulas is not None and model.shape_of("x") == ("N", 3, 10, 12)


def test_models_for_the_shapes_of_a_call_are_progressive_one_by_one() -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["r"]), helper.make_node("Softmax", ["r"], ["y"])]
    proto = model_of(
        nodes, {"x": ["N", 6], "to": (TensorProto.INT64, [2])}, {"y": [None, None]}, {}
    )  # fmt: skip
    model = polyc.compile_model(proto, threads=1, tier="progressive", symbolic=False)
    assert isinstance(model.running, PerCall)


def test_control_flow_and_recurrent_layers_have_a_first_program() -> None:
    proto = recurrent()
    full = polyc.compile_model(proto, threads=1)
    model = polyc.compile_model(proto, threads=1, tier="progressive")
    inputs = {}
    for name, (dtype, shape) in full.inputs.items():
        values = np.random.default_rng(4).standard_normal(shape)
        inputs[name] = values.astype({"f32": np.float32}.get(dtype, np.int64))
    first = running_of(model).now if isinstance(model.running, Progressive) else model
    for name, value in full(inputs).items():
        np.testing.assert_allclose(first(inputs)[name], value, rtol=1e-3, atol=1e-4)
    model.close()


def chooser() -> onnx.ModelProto:
    return model_of(
        [helper.make_node("Gather", ["x", "i"], ["y"], "pick")],
        {"x": [5, 2], "i": (TensorProto.INT64, [3])}, {"y": [3, 2]}, {},
    )  # fmt: skip


def test_indices_outside_are_errors_in_both_programs_and_never_without_checks() -> None:
    inputs = {"x": np.arange(10, dtype=np.float32).reshape(5, 2), "i": np.array([0, 7, -1])}
    model = polyc.compile_model(chooser(), threads=1, tier="progressive")
    for _ in range(2):
        with pytest.raises(BoundsError, match="pick"):
            model(inputs)
        assert model.wait()
    model = polyc.compile_model(chooser(), threads=1, tier="progressive", checks=False)
    for _ in range(2):
        assert model(inputs)["y"].tolist() == [[0, 1], [8, 9], [8, 9]]
        assert model.wait()


# ---- when the full program does not come ----


def test_a_process_that_dies_leaves_the_first_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(background, "MODULE", "polyc.no_such_module")
    model = polyc.compile_model(network(), dims={"N": 1}, threads=1, tier="progressive")
    assert not model.wait()
    assert "the first one stays: the process that compiles it died (exit code 1" in model.report().tiers[-1]
    assert model(feeds(model, 0))["y"].shape == (1, 5)
    with pytest.raises(BuildError, match="there is only the first program, which is not saved: the process"):
        model.save(tmp_path / "net.polyc")


def test_a_killed_process_leaves_the_first_program() -> None:
    model = polyc.compile_model(network(), dims={"N": 1}, threads=1, tier="progressive")
    os.kill(running_of(model).background.pid, signal.SIGKILL)
    assert not model.wait() and "exit code -9" in model.report().tiers[-1]
    wait_until(lambda: not running_of(model).background.folder.exists())
    assert model(feeds(model, 0))["y"].shape == (1, 5)


def test_kernels_that_cannot_be_compiled_in_the_background_run_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    full = polyc.compile_model(network(), dims={"N": 1}, threads=1)
    monkeypatch.setenv("POLYC_TIME_LIMIT", "0.001")
    monkeypatch.setenv("POLYC_CACHE", os.environ["POLYC_CACHE"] + "2")
    model = polyc.compile_model(network(), dims={"N": 1}, threads=1, tier="progressive")
    close(model(feeds(full, 0)), full(feeds(full, 0)))
    assert model.wait() and model.report().tier == "full"
    assert model.report().host and all("0.001 s" in why for _, _, why in model.report().host)
    close(model(feeds(full, 1)), full(feeds(full, 1)))


def test_a_file_that_changes_meanwhile_leaves_the_first_program(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    model = polyc.compile_model(path, dims={"N": 1}, threads=1, tier="progressive")
    onnx.save(network(4), path)
    before = model(feeds(model, 0))
    assert not model.wait() and "has changed since it was compiled" in model.report().tiers[-1]
    assert model(feeds(model, 0))["y"].tobytes() == before["y"].tobytes()


@pytest.mark.parametrize("option", [{"memory_limit": 10**9}, {"contiguous": [["c1", "r1"]]}])
def test_where_there_is_no_first_program_the_report_says_so(option: dict[str, Any]) -> None:
    proto = network()
    model = polyc.compile_model(proto, dims={"N": 1}, threads=1, tier="progressive", **option)
    assert model.report().tier == "full" and model.report().tiers[0].startswith("full from the start: ")


# ---- who stops the process ----


@pytest.mark.parametrize("how", ["close", "drop"])
def test_a_model_that_is_closed_or_dropped_stops_its_process(how: str) -> None:
    model = polyc.compile_model(network(), dims={"N": 1}, threads=1, tier="progressive")
    process, folder = running_of(model).background.pid, running_of(model).background.folder
    if how == "close":
        model.close()
        assert not model.wait() and "the model was closed before" in model.report().tiers[-1]
        assert model(feeds(model, 0))["y"].shape == (1, 5)
        model.close()
    del model
    wait_until(lambda: gone(process) and not folder.exists())


SCRIPT = """
import sys, time
sys.path.insert(0, "tests/graph_driver")
from tiny_models import network
import polyc
model = polyc.compile_model(network(), dims={"N": 1}, threads=1, tier="progressive")
print(model.running.background.pid, model.running.background.folder, flush=True)
"""


def script(more: str) -> Iterator[Any]:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT + more], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, folder = process.stdout.readline().split()
    yield process, int(pid), Path(folder)
    process.stdout.close()
    wait_until(lambda: gone(int(pid)))


def test_the_end_of_the_program_is_the_end_of_the_process() -> None:
    for process, _, folder in script(""):
        assert process.wait() == 0 and not folder.exists()


def test_a_killed_program_takes_the_process_with_it() -> None:
    for process, _, folder in script("time.sleep(600)"):
        process.kill()
        process.wait()
    for rest in sorted(folder.rglob("*"), reverse=True):  # nobody is left who could remove it
        rest.rmdir() if rest.is_dir() else rest.unlink()
    folder.rmdir()


def test_ctrl_c_ends_a_wait_and_not_the_process() -> None:
    more = """
try:
    model.wait()
except KeyboardInterrupt:
    print("stopped", flush=True)
print(model.wait(), flush=True)
"""
    for process, _, _ in script(more):
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        said = process.stdout.read().split()
        assert process.wait() == 0 and said in (["stopped", "True"], ["True"])


def test_a_fork_has_the_first_program_and_compiles_when_it_waits() -> None:
    model = polyc.compile_model(network(), dims={"N": 1}, threads=1, tier="progressive")
    want = running_of(model).now(feeds(model, 0))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            close(model(feeds(model, 0)), want)
            assert model.wait()
            close(model(feeds(model, 0)), want)
            del model
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert model.wait()  # the child has not stopped it
    close(model(feeds(model, 0)), want)
