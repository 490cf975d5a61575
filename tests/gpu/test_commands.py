"""The command line with GPU targets, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from texts import needs_nvidia, needs_opencl
from tiny_models import network

from emit.gpu import devices
from emit.gpu.devices import open_device
from graph_driver.cli import main

MATMUL = str(Path(__file__).resolve().parents[2] / "examples" / "matmul.py") + ":matmul"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(network(), str(path))
    return path


def test_inspect_shows_text_and_mapping(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", MATMUL, "--stage", "cuda", "--target", "sm_90"]) == 0
    text = capsys.readouterr().out
    assert (
        text.startswith("/* matmul_0_wide: blocks ")
        and "matmul_0: blocks " in text
        and "shared " in text
        and "__global__" in text
    )
    assert main(["inspect", MATMUL, "--stage", "opencl"]) == 0
    assert "__kernel" in capsys.readouterr().out
    assert main(["inspect", MATMUL, "--stage", "schedule", "--target", "sm_90"]) == 0
    assert "block.x" in capsys.readouterr().out


def test_compile_needs_no_device(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "--target", "opencl", "-o", str(tmp_path / "out")]) == 0
    assert "GPU kernels" in capsys.readouterr().out
    assert [*(tmp_path / "out" / "kernels").glob("*.cl")] and (tmp_path / "out" / "weights.bin").is_file()


@needs_nvidia
@pytest.mark.long
def test_compile_writes_machine_code(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "--target", "sm_90", "-o", str(tmp_path / "out")]) == 0
    assert "kernels compiled to machine code" in capsys.readouterr().out
    kernels = tmp_path / "out" / "kernels"
    assert len([*kernels.glob("*.cu")]) == len([*kernels.glob("*.cubin")]) > 0
    found = json.loads((tmp_path / "out" / "resources.json").read_text())
    assert all(0 < r["registers"] <= 255 and r["spill_loads"] == 0 for r in found)


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
    assert "no target 'sm_1' for models in this version (it has cpu, c, cuda, opencl" in capsys.readouterr().err


def test_doctor_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(found["devices"]) == {"pycuda", "cuda-bindings", "pyopencl"} and "sm_90" in found["gpu_targets"]
