"""The command: exit codes, one line per error, stable JSON, every stage of inspect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tiny_models import model_of, network, with_host_steps

from polyc.graph_driver import cli
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.execution.watching import Watch
from polyc.poly.errors import ModelError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "net.onnx"
    path.write_bytes(network().SerializeToString())
    return path


@pytest.fixture
def polyc(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command in this process: (exit code, stdout, stderr)."""
    monkeypatch.delenv("POLYC_DEBUG", raising=False)

    def run(*argv: object) -> tuple[int, str, str]:
        try:
            code = cli.main([str(a) for a in argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_run_check(polyc: Any, model: Path) -> None:
    code, out, err = polyc("run", model, "--check", "--threads", "1")
    assert (code, err) == (0, "") and "ok (limit 0.0001, onnxruntime" in out and "host     no operators" in out


def test_a_name_that_no_file_can_have_is_one_line(polyc: Any) -> None:
    code, _, err = polyc("run", "a" * 5000)
    assert code == 1 and "File name too long" in err and err.count("\n") == 1


def test_run_is_seeded_and_modes_agree(polyc: Any, model: Path) -> None:
    def outputs(*options: object) -> Any:
        code, out, err = polyc("run", model, "--json", "--threads", "1", *options)
        assert (code, err) == (0, "")
        return json.loads(out)["outputs"]["y"]

    assert outputs() == outputs("--mode", "eager") == outputs("--seed", 0) != outputs("--seed", 1)
    assert outputs("--dim", "N=3")["shape"] == [3, 5]


def test_a_failed_check_is_exit_code_1(polyc: Any, model: Path) -> None:
    code, out, _ = polyc("run", model, "--check", "--threads", "1", "--tolerance", "0")
    assert code == 1 and "TOO LARGE" in out
    code, _, err = polyc("run", model, "--tolerance", "1e-3")
    assert code == 2 and err == "polyc: --reference and --tolerance need --check\n"


def test_inputs_outputs_and_tensors(polyc: Any, model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 10, 12)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    code, out, err = polyc(
        "run", model, "--input", f"x={tmp_path}/x.npy", "--save", tmp_path / "o.npz", "--threads", "1",
        "--mode", "eager", "--tensor", "c2", "--check",
    )  # fmt: skip
    assert (code, err) == (0, "") and "output   c2: float32[4, 8, 5, 6]" in out
    assert np.load(tmp_path / "o.npz")["y"].shape == (4, 5)


def test_a_run_stops_at_any_step_and_prints_any_tensor(polyc: Any, model: Path) -> None:
    given, net = {"x": np.ones((2, 3, 10, 12), np.float32)}, compile_model(model, threads=1)
    whole = Watch()
    outputs = net.run(given, "eager", observer=whole)
    for k, step in enumerate(net.plan.steps):
        found = net.run_until(given, str(k), ["x"])
        assert set(found) == {*step.results, "x"}
        for name in step.results:
            np.testing.assert_array_equal(found[name], whole.values[name])
    inside = next(t for g in net.groups for n in g.nodes[:-1] for t in n.writes())
    np.testing.assert_array_equal(net.run_until(given, inside)[inside], net.inspect(given, [inside])[inside])
    np.testing.assert_array_equal(net(given)["y"], outputs["y"])  # a run that was stopped leaves nothing behind
    with pytest.raises(ModelError, match="'y' is not there yet after step 0"):
        net.run_until(given, "0", ["y"])
    run = ("run", model, "--mode", "eager", "--threads", "1")
    code, out, err = polyc(*run, "--stop-at", "1", "--tensor", "x", "--json")
    assert (code, err) == (0, "") and "y" not in (made := json.loads(out)["outputs"]) and "x" in made
    assert polyc("run", model, "--stop-at", "0")[::2] == (2, "polyc: --stop-at needs --mode eager\n")
    assert polyc(*run, "--stop-at", "nothing")[0] == 1


def test_compile_then_run_the_directory(polyc: Any, model: Path, tmp_path: Path) -> None:
    code, out, err = polyc("compile", model, "-o", tmp_path / "net", "--threads", "1", "--json")
    assert (code, err) == (0, "") and json.loads(out)["host"] == []
    code, out, err = polyc("run", tmp_path / "net", "--check", "--reference", model)
    assert (code, err) == (0, "") and "ok (limit" in out
    assert polyc("inspect", tmp_path / "net", "--stage", "plan")[1].count("kernel") == 5


def test_default_output_lies_beside_the_model(polyc: Any, tmp_path: Path) -> None:
    (tmp_path / "h.onnx").write_bytes(with_host_steps().SerializeToString())
    code, out, _ = polyc("compile", tmp_path / "h.onnx", "--threads", "1")
    assert code == 0 and (tmp_path / "h.polyc" / "manifest.json").is_file() and "NonZero 'nonzero'" in out


STAGES = {
    "graph": "Conv(x, const f32[8,3,3,3]",
    "scop": "S0",
    "deps": "RAW",
    "schedule": "for ",
    "loops": "for ",
    "c": "void ",
    "llvm": "define",
    "asm": ".text",
    "memory": "lower bound",
    "plan": "Conv+Sigmoid+Mul+Add",
}


@pytest.mark.parametrize("stage", STAGES)
def test_inspect_every_stage(polyc: Any, model: Path, stage: str) -> None:
    chosen = () if stage in ("graph", "memory", "plan") else ("--kernel", "Gemm")
    code, out, err = polyc("inspect", model, "--stage", stage, "--threads", "1", *chosen)
    assert (code, err) == (0, "") and STAGES[stage] in out


def test_inspect_as_a_page(polyc: Any, model: Path, tmp_path: Path) -> None:
    code, out, err = polyc("inspect", model, "--stage", "scop", "--html", tmp_path / "s.html", "--threads", "1")
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert (code, out, err) == (0, "", "") and page.count("<h2>kernel ") == 5 and "&lt;=" in page
    code, _, _ = polyc("inspect", model, "--stage", "graph", "--html", tmp_path / "g.html")
    assert code == 0 and "<pre>graph tiny" in (tmp_path / "g.html").read_text(encoding="utf-8")
    assert polyc("inspect", model, "--html", tmp_path / "no" / "g.html")[0] == 1


def test_doctor(polyc: Any) -> None:
    code, out, _ = polyc("doctor", "--json")
    assert code == 0 and json.loads(out)["packages"]["onnx"]
    assert "CPU" in polyc("doctor")[1]


def wrong(tmp_path: Path) -> dict[str, tuple[list[object], int, str]]:
    net = tmp_path / "net.onnx"
    net.write_bytes(network().SerializeToString())
    symbolic = tmp_path / "sym.onnx"
    proto = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, "H", "W"]}, {"y": None}, {})
    symbolic.write_bytes(proto.SerializeToString())
    unknown = tmp_path / "unknown.onnx"
    proto = model_of([helper.make_node("Frob", ["x"], ["y"])], {"x": [1]}, {"y": None}, {})
    unknown.write_bytes(proto.SerializeToString())
    (tmp_path / "junk.onnx").write_bytes(b"junk" * 100)
    (tmp_path / "junk.npy").write_bytes(b"junk" * 100)
    np.save(tmp_path / "f64.npy", np.zeros((1, 3, 10, 12)))
    np.save(tmp_path / "small.npy", np.zeros((1, 3, 10, 11, 1), np.float32))
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    return {
        "no command": ([], 2, "required"),
        "unknown command": (["frobnicate"], 2, "invalid choice"),
        "unknown option": (["run", net, "--fast"], 2, "unrecognized"),
        "unknown mode": (["run", net, "--mode", "warp"], 2, "invalid choice"),
        "no file": (["run", tmp_path / "none.onnx"], 1, "No such file"),
        "junk": (["run", tmp_path / "junk.onnx"], 1, "not an ONNX model"),
        "unknown operator": (["compile", unknown], 1, "unknown operator Frob"),
        "missing sizes": (["compile", symbolic, "--target", "c"], 1, "sizes not given: H, W"),
        "bad size": (["run", symbolic, "--dim", "H=big"], 2, "expected NAME=NUMBER"),
        "unknown size": (["run", net, "--dim", "Q=1"], 1, "no size named 'Q'"),
        "unknown input": (["run", net, "--input", f"z={tmp_path}/f64.npy"], 1, "no input 'z'"),
        "bad input": (["run", net, "--input", "x"], 2, "expected --input NAME=FILE.npy"),
        "no input file": (["run", net, "--input", f"x={tmp_path}/no.npy"], 1, "No such file"),
        "junk input": (["run", net, "--input", f"x={tmp_path}/junk.npy"], 1, "not an array"),
        "pickled input": (["run", net, "--input", f"x={tmp_path}/object.npy"], 1, "not an array"),
        "input dtype": (["run", net, "--input", f"x={tmp_path}/f64.npy"], 1, "dtype float64"),
        "input rank": (["run", net, "--input", f"x={tmp_path}/small.npy"], 1, "rank 5"),
        "unknown target": (["compile", net, "--target", "abacus"], 2, "unknown target 'abacus'"),
        "threads": (["compile", net, "--threads", "0"], 2, "at least 1"),
        "output folder": (["compile", net, "-o", tmp_path / "full", "--threads", "1"], 1, "no compiled model"),
        "unwritable": (["compile", net, "-o", "/proc/none/x", "--threads", "1"], 1, "cannot write"),
        "save": (["run", net, "--save", "/proc/none/x", "--threads", "1"], 1, "cannot write"),
        "memory limit": (["compile", net, "--memory-limit", "10", "--threads", "1"], 1, "memory limit"),
        "a plain folder": (["run", tmp_path / "full"], 1, "neither an ONNX file"),
        "no such operator file": (["inspect", "nothing.py:op"], 2, "no such file"),
        "no such stage": (["inspect", net, "--stage", "magic"], 2, "invalid choice"),
        "no such kernel": (["inspect", net, "--stage", "scop", "--kernel", "99"], 2, "no kernel '99'"),
        "tensor in graph mode": (["run", net, "--tensor", "y"], 2, "--mode eager"),
    }  # fmt: skip


@pytest.mark.parametrize("name", wrong(Path(__import__("tempfile").mkdtemp())))
def test_errors_are_one_line(polyc: Any, tmp_path: Path, name: str) -> None:
    argv, expected, words = wrong(tmp_path)[name]
    code, out, err = polyc(*argv)
    assert (code, err.count("\n")) == (expected, 1), err
    assert words in err and "Traceback" not in err and out == ""


def environment(**more: str) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "POLYC_DEBUG"} | more


def test_an_unwritable_cache_is_only_a_note(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = subprocess.run(
        [sys.executable, "-m", "polyc.graph_driver.cli", "run", str(model), "--threads", "1", "--check"],
        env=environment(POLYC_CACHE=str(tmp_path / "file" / "cache")), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "" and "cache" in done.stdout


def children(pid: int) -> list[str]:
    """Processes that any thread of `pid` has started."""
    return [c for task in Path(f"/proc/{pid}/task").glob("*/children") for c in task.read_text().split()]


def test_interrupting_a_compilation(model: Path, tmp_path: Path) -> None:
    """Ctrl-C goes to the whole process group: one line, no traceback, no process left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "polyc.graph_driver.cli", "run", str(model), "--threads", "1"],
        env=environment(POLYC_CACHE=str(tmp_path / "cache")), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not children(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = children(process.pid)
    assert workers and process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "polyc: interrupted\n")
    while any(Path(f"/proc/{w}").exists() for w in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(Path(f"/proc/{w}").exists() for w in workers)


def test_a_closed_pipe_is_no_traceback(model: Path) -> None:
    command = f"{sys.executable} -m polyc.graph_driver.cli inspect {model} --stage graph | head -c 1 >/dev/null"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment())
    assert done.stderr == ""
