"""Pages for GPU targets: what is a block, a thread, in shared memory, in registers; what a block moves and takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from browser import checked, opened

from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import nvidia
from polyc.graph_driver.cli import main
from polyc.graph_driver.html.operator_page import operator_document
from polyc.graph_driver.html.page import page
from polyc.graph_driver.worker.compile_operator import auto_schedule

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu"))
from programs import ALL


def document(name: str, target: str, **sizes: int) -> dict[str, Any]:
    machine = targets.get(target)
    return operator_document(auto_schedule(ALL[name][0].scop(), machine, sizes), machine, "automatic", sizes)


def test_the_mapping_of_a_product() -> None:
    data = document("matmul", "sm_90")
    assert [p[0] for p in data["code"]["panes"]] == ["loops", "cuda"]
    linked = [origin for _, origin in data["code"]["cuda"] if origin]
    assert len(linked) > 0.8 * len(data["code"]["cuda"])
    for k in data["mapping"]:
        axes = {a["axis"]: a for a in k["axes"]}
        assert {a: axes[a]["loops"] for a in axes} == {
            "block.x": ("j.out",), "block.y": ("i.out",), "thread.x": ("j.in.out",), "thread.y": ("i.in.out",)
        }  # fmt: skip
        rows, columns = (1024 // axes[a]["count"] for a in ("block.y", "block.x"))
        moved = {(m, a, w): n for m, a, w, n in k["moved"]["bytes"]}
        assert moved["global", "A", "read"] == 4 * 1024 * rows and moved["global", "B", "read"] == 4 * 1024 * columns
        assert moved["global", "C", "written"] == 4 * rows * columns
        held = {h["name"].rstrip("_1"): h["space"] for h in k["held"]}
        assert held["A_panel"] == held["B_panel"] == "shared" and held["C_tile"] == "register"
        assert k["shared"] == sum(h["bytes"] for h in k["held"] if h["space"] == "shared")
        assert 0 < k["occupancy"] <= 1 and k["blocks"] > 0
        assert (k["resources"] is None) == (nvidia.compiler() is None)


def test_the_page_of_a_gpu_kernel(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(document("matmul", "sm_80", M=256, N=256, K=64), "test"), encoding="utf-8")
    assert {"a bound loop lights the tree", "hover lights cuda"} <= set(checked(path, tmp_path / "profile")["checks"])


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("target", ["sm_90", "opencl"])
def test_every_program(name: str, target: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(document(name, target), "test"), encoding="utf-8")
    checked(path, tmp_path / "profile")


def test_pages_of_a_model(tmp_path: Path) -> None:
    import onnx

    sys.path.append(str(Path(__file__).resolve().parents[1] / "graph_driver"))
    from tiny_models import with_host_steps

    model, whole, one = (tmp_path / n for n in ("m.onnx", "whole.html", "one.html"))
    onnx.save(with_host_steps(), str(model))
    assert main(["inspect", str(model), "--target", "sm_80", "--html", str(whole)]) == 0
    assert main(["inspect", str(model), "--target", "opencl", "--kernel", "0", "--html", str(one)]) == 0
    assert "block.x" in opened(one, tmp_path / "profile", "mapping") and "sm_80" in whole.read_text()
