"""Compiled directories on a CPU that lacks what their code needs: compiled again from the kernels' sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tiny_models import model_of, network

from polyc.emit import targets
from polyc.graph_driver import cli
from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.backends.cpu import SOURCES
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.planning.verify_plan import check_plan
from polyc.poly.errors import BuildError

FOREIGN = ["aarch64", "x86-64-v4"]


def foreign(name: str) -> Any:
    """A target that this machine cannot run."""
    target = targets.get(name)
    if targets.obstacle(target) is None:
        pytest.skip(f"this machine runs code for {name}")
    return target


@pytest.mark.parametrize("name", FOREIGN)
def test_code_of_another_cpu_is_made_again(name: str, tmp_path: Path, capsys: Any) -> None:
    compile_model(network(), target=foreign(name), threads=1, dims={"N": 2}).save(tmp_path / "net")
    here = compile_model(network(), threads=1, dims={"N": 2})
    loaded = load(tmp_path / "net")
    feeds = {"x": np.random.default_rng().standard_normal((2, 3, 10, 12)).astype(np.float32)}
    np.testing.assert_allclose(loaded(feeds)["y"], here(feeds)["y"], rtol=1e-4, atol=1e-5)
    assert any("its kernels were compiled again" in n and "lacks" in n for n in loaded.report().notes)
    check_plan(loaded.plan, {s.symbol for s in loaded.plan.steps}, 0)
    loaded.save(tmp_path / "again")  # for this machine now: loads as it is
    again = load(tmp_path / "again")
    assert again.code.target == targets.host() and again.code.sources == loaded.code.sources
    np.testing.assert_array_equal(again(feeds)["y"], loaded(feeds)["y"])
    assert cli.main(["run", str(tmp_path / "net"), "--poison"]) == 0
    assert "compiled again" in capsys.readouterr().out


def test_scratch_of_the_new_code_has_its_place(tmp_path: Path) -> None:
    """A product whose operand is packed here and not there, or the other way round."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[3, 3, 3, 3]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = {
        "w": rng.standard_normal((32, 3, 7, 7)).astype("f"),
        "v": rng.standard_normal((16, 32, 3, 3)).astype("f"),
    }
    proto = model_of(nodes, {"x": [1, 3, 64, 64]}, {"y": None}, weights)
    compile_model(proto, target=foreign("aarch64"), threads=1, disable=["winograd"]).save(tmp_path / "net")
    here, loaded = compile_model(proto, threads=1, disable=["winograd"]), load(tmp_path / "net")
    assert [s.scratch for s in here.plan.steps if s.scratch], "a kernel of this model has scratch"
    feeds = {"x": rng.standard_normal((1, 3, 64, 64)).astype(np.float32)}
    loaded.executor().arena[:] = 0xFF
    np.testing.assert_allclose(loaded(feeds)["y"], here(feeds)["y"], rtol=1e-3, atol=1e-3)
    assert loaded.plan.peak >= loaded.plan.bound


def test_without_sources_it_is_refused(tmp_path: Path) -> None:
    model = compile_model(network(), target=foreign("aarch64"), threads=1, dims={"N": 1})
    model.code.sources = ""
    model.save(tmp_path / "net")
    with pytest.raises(BuildError, match="this machine .* lacks aarch64; compile the ONNX file here"):
        load(tmp_path / "net")


def test_sources_of_other_kernels_are_refused(tmp_path: Path) -> None:
    model = compile_model(network(), target=foreign("aarch64"), threads=1, dims={"N": 1})
    good = json.loads(model.code.sources)
    first, second = list(good)[:2]
    for broken, why in (
        (good | {first: good[second]}, "is not its own"),
        ({first: good[first]}, "some kernels have no sources"),
        ([1], "not what polyc writes"),
    ):
        model.code.sources = json.dumps(broken)
        model.save(tmp_path / "net")
        with pytest.raises(BuildError, match=why):
            load(tmp_path / "net")


def test_damaged_sources_are_found(tmp_path: Path) -> None:
    compile_model(network(), threads=1, dims={"N": 1}).save(tmp_path / "net")
    path = tmp_path / "net" / SOURCES
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    with pytest.raises(BuildError, match="the checksum of sources.json does not match"):
        load(tmp_path / "net")
