"""The command line with GPU targets, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from texts import needs_nvidia, needs_opencl
from tiny_models import network, recurrent, with_host_steps

import polyc
from polyc.emit import targets
from polyc.emit.gpu import devices
from polyc.emit.gpu.devices import open_device
from polyc.graph_driver.cli import main
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import BuildError

GATHER = """
from polyc import dims, empty, f32, i32, op
N, M = dims("N M")
@op
def gather(X: f32[N], I: i32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(M):
        Y[i] = X[I[i]]
    return Y
"""
MATMUL = str(Path(__file__).resolve().parents[2] / "examples" / "matmul.py") + ":matmul"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(network(), str(path))
    return path


def test_inspect_shows_text_and_mapping(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", MATMUL, "--stage", "cuda", "--target", "sm_90"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("/* matmul_0_wide, when ") and "\n   matmul_0\n" in text and "__global__" in text
    assert "block.x   bx < (N + 63) // 64: loop j.out" in text and "thread.x  tx < 16: loop j.in.out" in text
    assert "shared    A_panel: f32[2, 16, 68], 8704 bytes, holds A_panel" in text
    assert "moves     global read 524288 bytes (262144 A, 262144 B)" in text and "registers a thread" in text
    assert main(["inspect", MATMUL, "--stage", "opencl"]) == 0
    assert "__kernel" in capsys.readouterr().out
    assert main(["inspect", MATMUL, "--stage", "schedule", "--target", "sm_90"]) == 0
    assert "block.x" in capsys.readouterr().out


def test_compile_needs_no_device(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "--target", "opencl", "--dim", "N=1", "-o", str(tmp_path / "out")]) == 0
    assert "GPU kernels" in capsys.readouterr().out
    assert [*(tmp_path / "out" / "kernels").glob("*.cl")] and (tmp_path / "out" / "weights.bin").is_file()


@needs_opencl
def test_a_compiled_directory_runs_again(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    for _ in range(2):  # the second replaces the first
        assert main(["compile", str(model), "--target", "opencl", "--dim", "N=1", "-o", str(out)]) == 0
    assert main(["run", str(out), "--check", "--reference", str(model)]) == 0
    assert ": ok (limit" in capsys.readouterr().out
    assert main(["inspect", str(out), "--stage", "plan"]) == 0
    capsys.readouterr()
    (out / "code.bin").write_bytes((out / "code.bin").read_bytes().replace(b"__kernel", b"__kernfl"))
    assert main(["run", str(out)]) == 1
    assert capsys.readouterr().err == f"polyc: {out} is damaged: the checksum of code.bin does not match\n"


@needs_opencl
def test_bench_and_profile_of_a_gpu(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(model), "--target", "opencl", "--rounds", "1", "--against", "onnxruntime"]) == 0
    assert "% of peak" in capsys.readouterr().out
    trace = tmp_path / "trace.json"
    assert main(["run", str(model), "--target", "opencl", "--poison", "--profile", str(trace)]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert events and all("GB/s" in e["args"] and "% of peak" not in e["args"] for e in events)


@needs_opencl
def test_host_steps_and_control_flow_are_saved_too(tmp_path: Path) -> None:
    for k, proto in enumerate((with_host_steps(), recurrent())):
        made = polyc.compile_model(proto, target="opencl")
        made.save(tmp_path / str(k))
        again = polyc.load(tmp_path / str(k))
        x = {
            n: np.random.default_rng().standard_normal(shape).astype(BY_NAME[dtype].np)
            for n, (dtype, shape) in made.inputs.items()
        }
        expected = made(x)
        for name, value in again(x).items():
            np.testing.assert_array_equal(value, expected[name])


@needs_nvidia
@pytest.mark.long
def test_compile_writes_machine_code(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "--target", "sm_90", "--dim", "N=1", "-o", str(tmp_path / "out")]) == 0
    assert "kernels compiled to machine code" in capsys.readouterr().out
    kernels = tmp_path / "out" / "kernels"
    assert len([*kernels.glob("*.cu")]) == len([*kernels.glob("*.cubin")]) > 0
    found = json.loads((tmp_path / "out" / "resources.json").read_text())
    assert all(0 < r["registers"] <= 255 and r["spill_loads"] == 0 for r in found)
    joined = b"".join(k.read_bytes() for k in kernels.glob("*.cubin"))
    assert (tmp_path / "out" / "cubins.bin").stat().st_size == len(joined)


@needs_opencl
@pytest.mark.long
def test_run_checks_the_whole_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "--target", "opencl", "--check"]) == 0
    assert ": ok (limit" in capsys.readouterr().out


def test_run_without_a_gpu_is_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(package: str) -> bool:
        return False

    monkeypatch.setattr(devices, "_installed", none)
    open_device.cache_clear()
    assert main(["run", str(model), "--target", "sm_80"]) == 1
    open_device.cache_clear()
    error = capsys.readouterr().err
    assert error == "polyc: no GPU here for cuda: pycuda is not installed; cuda-bindings is not installed\n"


def test_unknown_targets_are_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "--target", "sm_1"]) == 2
    assert "unknown target 'sm_1' (did you mean sm_" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["cuda", "sm_90+tf32", "opencl"])
def test_explain_is_of_the_gpu_asked_for(tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "op.py").write_text(GATHER)
    what = f"{tmp_path / 'op.py'}:gather"
    assert main(["explain", what, "--target", target, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [a["certificate"] for a in found["accesses"]] == ["proven", "checked inside", "proven"]
    assert "warp" in found["target"] and "bind" in found["decisions"][0]["text"]
    assert main(["explain", what, "--target", target]) == 0
    assert "blocks of up to" in capsys.readouterr().out
    assert main(["explain", what, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [a["certificate"] for a in found["accesses"]] == ["proven", "checked before", "proven"]


def test_a_gpu_where_a_cpu_is_wanted_is_named_as_what_it_is() -> None:
    with pytest.raises(BuildError, match="the target 'sm_90' is a GPU, and a CPU is asked for"):
        targets.get("sm_90")


def test_doctor_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(found["devices"]) == {"pycuda", "cuda-bindings", "pyopencl"} and "sm_90" in found["gpu_targets"]
