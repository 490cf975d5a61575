"""`polyc bench`: a small model beside the peers that are installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyc.graph_driver.bench.energy import BYTE, OPERATION, energy_of
from polyc.graph_driver.bench.timing import Timing
from polyc.graph_driver.cli import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
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
    return path


def test_figures_of_all_peers_and_of_the_steps(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = model.with_suffix(".json")
    assert (
        main(["bench", str(model), "--against", "onnxruntime", "--rounds", "3", "--kernels", "--json", str(figures)])
        == 0
    )
    (row,) = json.loads(figures.read_text())
    assert row["model"] == "mlp.onnx" and row["threads"] == 1
    assert set(row["ms"]) == {"polyc", "onnxruntime"}
    assert 0 < row["ms"]["polyc"][0] <= row["ms"]["polyc"][1]
    median = {who: ms[1] for who, ms in row["ms"].items()}
    assert all(row["p99_ms"][who] >= median[who] for who in median)
    assert all(row["runs_per_second"][who] == pytest.approx(1e3 / median[who], rel=0.05) for who in median)
    assert row["ratio"] == pytest.approx(row["ms"]["onnxruntime"][0] / row["ms"]["polyc"][0], rel=0.1)
    assert row["difference"] < 1e-5
    assert "product" in row["steps"][0]["step"] and row["steps"][0]["% of peak"] >= 0
    said = capsys.readouterr().out
    assert "mlp.onnx" in said and "p99 ms" in said and "runs a second" in said


@pytest.mark.parametrize("count", [1, 2, 20, 99, 100, 101, 1000])
def test_ninety_nine_of_a_hundred_runs_are_no_slower(count: int) -> None:
    ms = [float(v) for v in np.random.default_rng(count).permutation(count)]
    found = Timing.of(ms)
    assert found.minimum == 0.0 and found.median == count // 2
    assert found.p99 == min(v for v in ms if sum(w <= v for w in ms) >= 0.99 * count)


def test_without_peers_there_is_no_ratio(model: Path) -> None:
    figures = model.with_suffix(".json")
    assert main(["bench", str(model), "--against", "", "--rounds", "1", "--json", str(figures)]) == 0
    assert json.loads(figures.read_text())[0]["ratio"] is None


def powercap(root: Path, name: str, about: str, joules: float, wrap: int = 10_000_000) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(about + "\n")
    (folder / "max_energy_range_uj").write_text(f"{wrap}\n")
    (folder / "energy_uj").write_text(f"{int(joules * 1e6)}\n")
    return folder / "energy_uj"


def test_joules_are_read_where_a_machine_counts_them(tmp_path: Path) -> None:
    """Two packages, one of which begins anew while it is read, and memory; cores are part of a package."""
    files = [
        powercap(tmp_path, "intel-rapl:0", "package-0", 1.0), powercap(tmp_path, "intel-rapl:1", "package-1", 9.9),
        powercap(tmp_path, "intel-rapl:0:0", "core", 5.0), powercap(tmp_path, "intel-rapl:0:1", "dram", 0.0),
    ]  # fmt: skip

    def run() -> None:
        for file, micro in zip(files, (200_000, 300_000, 150_000, 50_000), strict=True):
            file.write_text(f"{(int(file.read_text()) + micro) % 10_000_001}\n")

    found = energy_of(run, {0: {"flops": 1000, "bytes": 80}}, tmp_path, 0.0)
    assert found.joules == pytest.approx(0.55) and set(found.measured) == {"package-0", "package-1", "dram"}
    assert not found.data()["estimate"] and "0.55 J a run, by the counters" in str(found)
    files[1].write_text("nonsense")
    broken = energy_of(run, {0: {"flops": 1000, "bytes": 80}, 1: {"bytes": 8}}, tmp_path, 0.0)
    assert broken.data()["estimate"] and "cannot be read" in str(broken)
    assert broken.joules == pytest.approx(1000 * OPERATION + 88 * BYTE)


def test_joules_are_estimated_and_said_so_elsewhere(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("polyc.graph_driver.bench.energy.energy_of.__defaults__", (tmp_path / "none", 0.0))
    figures = model.with_suffix(".json")
    assert main(["bench", str(model), "--against", "", "--rounds", "1", "--energy", "--json", str(figures)]) == 0
    energy = json.loads(figures.read_text())[0]["energy"]
    assert energy["estimate"] and energy["operations"] == 2 * 5 * 24 * 17 + 5 * 17
    least = 4 * (5 * 24 + 24 * 17 + 5 * 17)
    assert least <= energy["bytes"] < 2 * least  # weights in panels have padding
    assert "J a run, an estimate: 4165 operations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--against", "torch"], 2, "no peer 'torch'"),
        (["--rounds", "0"], 2, "--rounds must be at least 1"),
        (["--input", "z={there}"], 1, "the model has no input 'z'"),
    ],
)
def test_what_is_refused(
    model: Path, options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = model.with_suffix(".npy")
    np.save(there, np.zeros(3))
    assert main(["bench", str(model), *(o.format(there=there) for o in options)]) == code
    assert said in capsys.readouterr().err
