"""`python -m benchmarks --threads`: contenders in processes of their own, and what is made of their times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import threading_speed
from benchmarks.between_cores import lines_per_second
from benchmarks.contenders import Contender, Times, timed
from benchmarks.models import Network


@pytest.fixture
def network(tmp_path: Path) -> Network:
    """y = relu(x) on 4 numbers."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "relu.onnx")
    return Network("relu", "model", tmp_path / "relu.onnx", {"x": np.ones(4, np.float32)})


def test_every_contender_is_timed_or_says_why_not(network: Network) -> None:
    good, several = Contender("polyc", 1), Contender("onnxruntime", 1, 2)
    wrong = {"x": np.ones(5, np.float32)}
    times, refused = timed(network.path, network.inputs, {}, [good, several], 2, 0.01)
    assert set(times) == {good, several} and not refused
    assert all(t.latencies and t.seconds > 0 for t in times.values())
    times, refused = timed(network.path, wrong, {}, [good], 1, 0.01)
    assert not times and "5" in refused[good]


def test_figures_of_times() -> None:
    data = Times([float(n) for n in range(100, 0, -1)], 2.0).data()
    assert data == {"min": 1.0, "p50": 51.0, "p99": 100.0, "per_second": 50.0, "runs": 100}


def test_a_row_and_its_page(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {("polyc", 1): 8.0, ("polyc", 2): 4.0, ("other", 1): 9.0, ("other", 2): 6.0}

    def made_up(path: Path, inputs: object, bind: object, contenders: list[Contender], turns: int) -> object:
        found = {c: Times([spent[c.system, c.threads]], 1.0) for c in contenders if c.system != "broken"}
        return found, {c: "no such operator" for c in contenders if c.system == "broken"}

    monkeypatch.setattr(threading_speed, "timed", made_up)
    monkeypatch.setattr(threading_speed, "networks", lambda *_: iter([network]))
    peers = ["other", "broken"]
    rows = list(threading_speed.rows(2, peers, 1, ("model",), Path(), streams=True))
    assert rows[0]["ratio"] == {"polyc": 2.0, "other": 1.5, "broken": None}
    assert rows[0]["beside_peers"] == {"1": 1.125, "2": 1.5}
    page = threading_speed.page(rows, 2, [])
    assert "geometric mean 2.00, least 2.00 (relu)" in page and "broken 1x2 cannot run it (no such operator)" in page
    assert [] == list(threading_speed.rows(2, peers, 1, ("model",), Path(), only=["conv"]))


def test_lines_pass_between_cores() -> None:
    rate = lines_per_second()
    assert rate is None or rate > 0
